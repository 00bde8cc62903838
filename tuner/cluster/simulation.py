"""A cluster in virtual time: runs a policy on a stream of requests, in pieces or from beginning to end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

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
from tuner.cluster.requests import Arriving, Chunk
from tuner.cluster.statistics import Totals, clear, make_totals
from tuner.errors import InvalidInput
from tuner.scheduling.cluster import ClusterSpec, grow
from tuner.scheduling.log import EventLog
from tuner.scheduling.vocabulary import FULL, OK

__all__ = ["Interval", "Simulatable", "Simulation", "simulate"]

BUFFER = 1 << 13
"""Entries of the log noted in compiled code before Python takes them."""


PIECES = 20
"""Of a simulation, after each of which it is checked whether it can stop early."""


class Interval(NamedTuple):
    """Which requests of a simulation count."""

    begin: float
    """s; requests that arrive from then on count, and so does the executing done from then on."""
    end: float
    """s; until then. Infinite: until everything is answered."""
    last: float
    """s; all requests arrive before then."""


class Simulatable(Protocol):
    """What a simulation needs of a scenario."""

    @property
    def interval(self) -> Interval:
        """Which requests count."""

    @property
    def seed(self) -> int:
        """Of everything random."""

    @property
    def noise(self) -> float:
        """Standard deviation of the execution time relative to the profile's."""

    def cluster_spec(self) -> ClusterSpec:
        """Return the sessions and accelerators."""

    def make_policy(self) -> Any:
        """Return the policy's state at time 0."""

    def make_requests(self) -> Arriving:
        """Return the arrivals from time 0 on."""

    def draw_network(
        self, generator: np.random.Generator, count: int, /
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw delays: control, data per request, response; arrays of one if constant."""


class Simulation:
    """A cluster at a point in virtual time.

    It begins at time 0 with everything idle, and counts everything. Call :meth:`advance` any number of times,
    with :meth:`occupy` in between; :meth:`outcome` returns the counts since the last :meth:`reset_totals`.
    :meth:`drain` ends the arrivals and answers the requests that wait.

    The same scenario gives the same results, however time is cut into pieces.

    Args:
        scenario: What to simulate.
        log: Records what happens; see :class:`~tuner.scheduling.log.EventLog`.
        factor: Draws the factors on execution times in place of the scenario's ``noise``.
    """

    def __init__(
        self, scenario: Simulatable, *, log: EventLog | None = None, factor: Draw | None = None
    ) -> None:
        self._spec = scenario.cluster_spec()
        self._policy = scenario.make_policy()
        self._requests = scenario.make_requests()
        self._chunk = self._requests.next_chunk()
        self._log = log
        self._draws = Draws(scenario.seed, factor or lognormal_factor(scenario.noise), scenario.draw_network)
        cluster = self._policy[0]
        buffer = max(BUFFER, 2 * cluster.commands.size) if log else 0
        self._execution = self._draws.begin(make_execution(cluster.accelerators.size, buffer))
        self._totals = make_totals(cluster)

    @property
    def now(self) -> float:
        """The virtual time, s."""
        return float(self._execution.clock[0].now)

    @property
    def policy(self) -> Any:
        """The state of the policy."""
        return self._policy

    def change_policy(self, policy: Any) -> None:
        """Go on with another state of the policy, which shares its queues and accelerators with this one."""
        self._policy = policy

    @property
    def totals(self) -> Totals:
        """The counts so far."""
        return self._totals

    def measure(self, begin: float, end: float) -> None:
        """Count only the requests that arrive between two times, and the executing done between them."""
        clear(self._totals)
        self._totals.interval[0] = (begin, end, begin, end)

    def reset_totals(self) -> None:
        """Set the counts to 0; requests sent or dropped from now on count, and executing from now on."""
        clear(self._totals)
        self._totals.interval[0] = (-np.inf, np.inf, self.now, np.inf)
        ahead = _seconds_ahead(self._execution, self.now)  # (N, D)
        self._totals.accelerators["busy"] = ahead.sum(axis=1)
        self._totals.accelerators["batches"] = (ahead > 0).sum(axis=1)

    def occupy(self, accelerator: int, seconds: float) -> None:
        """Block an accelerator after the batches that it was sent, as when it loads a model.

        The policy does not know; the time does not count as executing.
        """
        line = self._execution.lines[accelerator]
        line.busy_until = max(line.busy_until, self.now) + seconds

    def advance(self, seconds: float) -> None:
        """Let time pass. Events at its very end happen in the next call."""
        for _ in self.steps(self.now + seconds):
            pass

    def steps(self, until: float) -> Iterator[float]:
        """Let time pass up to a time, s; yields the virtual time every fraction of a second of computing."""
        while self.now < until:
            limit = min(until, self._chunk.until)
            status = self._advance(limit)
            if status != OK:
                self._continue_after(status)
            elif limit == self._chunk.until:
                self._feed(self._requests.next_chunk())
            yield self.now
        self._empty_log()

    def drain(self) -> None:
        """End the arrivals, and let time pass until all requests are answered.

        Raises:
            AssertionError: The policy leaves requests without an answer.
        """
        clock = self._execution.clock
        self._feed(Chunk(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64), np.inf))
        while True:
            before = clock[0].answered
            status = self._advance(np.inf)
            if status == OK or (status == MORE and clock[0].answered == before):
                break
            self._continue_after(status)
        self._empty_log()
        left = clock[0].arrived - clock[0].answered
        assert not left, f"policy {self._name} leaves {left} of {clock[0].arrived} requests without an answer"

    def outcome(self) -> Outcome:
        """Return the counts up to now, since the last :meth:`reset_totals` or as :meth:`measure` says.

        Raises:
            ValueError: No time that counts has passed.
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
                make_session_outcome(self._totals, index, session, seconds)
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

    def _advance(self, until: float) -> int:
        return advance(self._policy, self._execution, self._chunk, self._totals, until)

    def _continue_after(self, status: int) -> None:
        """Make room or draw numbers, as the status for which the engine stopped asks."""
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
    most_bad: np.ndarray | None = None,
) -> Outcome:
    """Simulate a scenario from beginning to end and return what happened to the requests that count.

    All of them are answered: after the last arrival time passes until no request waits any more.

    Args:
        scenario: What to simulate.
        log: Records what happens.
        progress: Called a few times per second or more often with the share done so far, in [0, 1].
        most_bad: Late or dropped requests of each session beyond which the simulation stops early, with
            the counts up to then.   # (M,)

    Raises:
        InvalidInput: It has a planner, which would be ignored.
    """
    if (planner := getattr(scenario, "planner", None)) is not None:
        fix = "use `simulate_epochs` of `tuner.cluster.epochs`, or a copy with planner=None"
        raise InvalidInput("planner", f"{planner} does not plan here", fix)
    simulation = Simulation(scenario, log=log)
    begin, end, last = scenario.interval
    simulation.measure(begin, end)
    for until in np.linspace(0.0, last, PIECES + 1)[1:].tolist() if most_bad is not None else [last]:
        for now in simulation.steps(until):
            if progress:
                progress(min(1.0, now / last))
        counts = simulation.totals.sessions
        if most_bad is not None and (counts["late"] + counts["dropped"] > most_bad).any():
            return simulation.outcome()
    simulation.drain()
    return simulation.outcome()


def _seconds_ahead(execution: Execution, begin: float, end: float = np.inf) -> np.ndarray:
    """Return how long each outstanding batch executes between two times; 0 in unused slots.   # (N, D) s."""
    depth = execution.sent.shape[1]
    heads, tails = execution.lines["head"][:, None], execution.lines["tail"][:, None]
    outstanding = ((np.arange(depth) - heads) & (depth - 1)) < tails - heads  # (N, D)
    seconds = np.minimum(execution.sent["end"], end) - np.maximum(execution.sent["start"], begin)
    return np.where(outstanding, seconds.clip(0.0), 0.0)
