"""A cluster in virtual time: drives a policy with a workload, in pieces or from beginning to end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from tuner.cluster.draws import Draw, Draws, lognormal_factor
from tuner.cluster.engine import (
    CROWDED,
    DRAWS,
    LOGGED,
    MORE,
    STUCK,
    advance,
)
from tuner.cluster.execution import Execution, lengthen, make_execution
from tuner.cluster.outcome import Outcome, make_session_outcome
from tuner.cluster.statistics import Totals, clear, make_totals
from tuner.cluster.workload import Chunk
from tuner.scheduling.cluster import ClusterSpec, grow
from tuner.scheduling.log import EventLog
from tuner.scheduling.vocabulary import FULL, OK

__all__ = ["Simulatable", "Simulation", "simulate"]

BUFFER = 1 << 13
"""Entries of the log noted in compiled code before Python takes them."""


class Arriving(Protocol):
    """What a simulation needs of a workload."""

    def next_chunk(self) -> Chunk:
        """Return all arrivals from the end of the chunk before to the end of this one."""
        ...


class Simulatable(Protocol):
    """What a simulation needs of a scenario."""

    @property
    def seconds(self) -> float:
        """Length of the measured part."""
        ...

    @property
    def warmup_seconds(self) -> float:
        """Length of the part before it."""
        ...

    @property
    def seed(self) -> int:
        """Of all randomness."""
        ...

    @property
    def noise(self) -> float:
        """Standard deviation of the execution time relative to the profile's."""
        ...

    def cluster_spec(self) -> ClusterSpec:
        """Return the sessions and accelerators."""
        ...

    def make_policy(self) -> Any:
        """Return the state of the policy at time 0."""
        ...

    def make_workload(self) -> Arriving:
        """Return the arrivals from time 0 on."""
        ...

    def draw_network(
        self, generator: np.random.Generator, count: int, /
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw delays: control, data per request, response; arrays of one if constant."""
        ...


class Simulation:
    """A cluster that stands at a time and can be let run on.

    In the beginning it is time 0 and everything is idle; all that happens is counted. :meth:`advance` as
    often as wanted, with :meth:`occupy` in between; :meth:`outcome` tells what happened since the last
    :meth:`reset_totals`. :meth:`drain` ends the arrivals and answers what waits.

    The same scenario gives the same results, however time is cut into pieces.

    Args:
        scenario: What to simulate.
        log: Records what happens; see :class:`~tuner.scheduling.log.EventLog`.
        factor: Draws the factors on execution times, instead of the scenario's ``noise``.
    """

    def __init__(
        self, scenario: Simulatable, *, log: EventLog | None = None, factor: Draw | None = None
    ) -> None:
        self._spec = scenario.cluster_spec()
        self._policy = scenario.make_policy()
        self._workload = scenario.make_workload()
        self._chunk = self._workload.next_chunk()
        self._log = log
        self._draws = Draws(scenario.seed, factor or lognormal_factor(scenario.noise), scenario.draw_network)
        cluster = self._policy[0]
        buffer = max(BUFFER, 2 * cluster.commands.size) if log else 0
        self._execution = self._draws.begin(make_execution(cluster.accelerators.size, buffer))
        self._totals = make_totals(cluster)

    @property
    def now(self) -> float:
        """The time that the simulation has reached, s."""
        return float(self._execution.clock[0].now)

    @property
    def policy(self) -> Any:
        """The state of the policy."""
        return self._policy

    @property
    def totals(self) -> Totals:
        """What was counted so far."""
        return self._totals

    def measure(self, begin: float, end: float) -> None:
        """Count the requests that arrive between two times, and the executing done between them, only."""
        clear(self._totals)
        self._totals.interval[0] = (begin, end, begin, end)

    def reset_totals(self) -> None:
        """Count afresh: all requests sent or dropped from now on, and the executing done from now on."""
        clear(self._totals)
        self._totals.interval[0] = (-np.inf, np.inf, self.now, np.inf)
        ahead = _seconds_ahead(self._execution, self.now)  # (N, D)
        self._totals.accelerators["busy"] = ahead.sum(axis=1)
        self._totals.accelerators["batches"] = (ahead > 0).sum(axis=1)

    def occupy(self, accelerator: int, seconds: float) -> None:
        """Keep an accelerator from executing, after what it was sent already: a model is loading there.

        The policy is not told; the time does not count as executing.
        """
        line = self._execution.lines[accelerator]
        line.busy_until = max(line.busy_until, self.now) + seconds

    def advance(self, seconds: float) -> None:
        """Let time pass. What would happen at its very end is left for the next call."""
        for _ in self.steps(self.now + seconds):
            pass

    def steps(self, until: float) -> Iterator[float]:
        """Let time pass up to a time in pieces of computing well below a second; yields the time reached."""
        while self.now < until:
            limit = min(until, self._chunk.until)
            status = advance(self._policy, self._execution, self._chunk, self._totals, limit)
            if status != OK:
                self._provide(status)
            elif limit == self._chunk.until:
                self._feed(self._workload.next_chunk())
            yield self.now
        self._empty_log()

    def drain(self) -> None:
        """End the arrivals, and let time pass until all requests are answered.

        Raises:
            AssertionError: The policy leaves some without an answer.
        """
        clock = self._execution.clock
        self._feed(Chunk(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64), np.inf))
        while True:
            before = clock[0].answered
            status = advance(self._policy, self._execution, self._chunk, self._totals, np.inf)
            if status == OK or (status == MORE and clock[0].answered == before):
                break
            self._provide(status)
        self._empty_log()
        left = clock[0].arrived - clock[0].answered
        assert not left, f"policy {self._name} leaves {left} of {clock[0].arrived} requests without an answer"

    def outcome(self) -> Outcome:
        """Return what was counted up to now, since the last :meth:`reset_totals` or as :meth:`measure` says.

        Raises:
            ValueError: No time has passed that counts.
        """
        interval = self._totals.interval[0]
        end = min(self.now, float(interval.busy_until))
        seconds = end - float(interval.busy_from)
        if not seconds > 0:
            raise ValueError(
                f"nothing was measured yet at {self.now} s; measured from {interval.busy_from} s on"
            )
        ahead = _seconds_ahead(self._execution, end, float(interval.busy_until))  # counted, but not done yet
        busy = self._totals.accelerators["busy"] - ahead.sum(axis=1)
        return Outcome(
            sessions=tuple(
                make_session_outcome(self._totals, index, session.name, session.slo, seconds)
                for index, session in enumerate(self._spec.sessions)
            ),
            utilisation=tuple((busy / seconds).clip(0.0, 1.0).tolist()),
            seconds=seconds,
        )

    @property
    def _name(self) -> str:
        return type(self._policy).__name__

    def _feed(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._execution.clock[0].taken = 0

    def _provide(self, status: int) -> None:
        """Give the engine what it stopped for."""
        if status == FULL:
            self._policy = grow(self._policy)
        elif status == CROWDED:
            self._execution = lengthen(self._execution)
        elif status == DRAWS:
            self._draws.refill(self._execution)
        elif status == LOGGED:
            self._empty_log()
        elif status == STUCK:
            raise AssertionError(
                f"policy {self._name} asks for wake at {self.now} s for ever and does nothing"
            )
        else:
            assert status == MORE, f"unknown status {status}"

    def _empty_log(self) -> None:
        if self._log is not None:
            clock = self._execution.clock[0]
            self._log.take(self._execution.log[: clock.logged])
            clock.logged = 0


def simulate(
    scenario: Simulatable,
    *,
    log: EventLog | None = None,
    progress: Callable[[float], None] | None = None,
) -> Outcome:
    """Simulate a scenario from beginning to end and return what happened in its measured part.

    Those requests count that arrive after the warm-up and before the end. All of them are answered: after
    the end no more arrive, and time passes until nothing waits any more.

    Args:
        scenario: What to simulate.
        log: Records what happens.
        progress: Called a few times per second or more often with the share done so far, in [0, 1].
    """
    simulation = Simulation(scenario, log=log)
    end = scenario.warmup_seconds + scenario.seconds
    simulation.measure(scenario.warmup_seconds, end)
    for now in simulation.steps(end):
        if progress:
            progress(min(1.0, now / end))
    simulation.drain()
    return simulation.outcome()


def _seconds_ahead(execution: Execution, begin: float, end: float = np.inf) -> np.ndarray:
    """Return how long each outstanding batch executes between two times; 0 in unused slots.   # (N, D) s."""
    depth = execution.sent.shape[1]
    heads, tails = execution.lines["head"][:, None], execution.lines["tail"][:, None]
    outstanding = ((np.arange(depth) - heads) & (depth - 1)) < tails - heads  # (N, D)
    seconds = np.minimum(execution.sent["end"], end) - np.maximum(execution.sent["start"], begin)
    return np.where(outstanding, seconds.clip(0.0), 0.0)
