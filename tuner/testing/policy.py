"""What every scheduling policy must do, as tests to inherit.

A policy's test module subclasses :class:`PolicyContract`::

    class TestEager(PolicyContract):
        promises = True

        def make(self, spec):
            return build(spec)

Clusters and requests are drawn by hypothesis, the same ones in every run, and the policy is driven by the
plain :func:`~tuner.testing.driver.drive`, so that only its own functions are compiled. Importing this module
needs hypothesis and pytest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec
from tuner.testing.driver import PolicyRun, answers_again, believed, drive, with_rings

__all__ = ["PolicyCase", "PolicyContract", "cases", "overload"]

TINY = 1e-9
"""s that two ways of adding up the same times may differ."""
EXAMPLES = 8 if numba.config.DISABLE_JIT else 25  # type: ignore[attr-defined]  # set at run time by numba
"""Cases that a test draws; functions that are not compiled take a hundred times as long."""


@dataclass(frozen=True, kw_only=True)
class PolicyCase:
    """A cluster and the requests that come to it."""

    spec: ClusterSpec
    arrivals: Sequence[tuple[float, int, int]]
    """Per request its time (s), session and source, in order of time."""


@st.composite
def _sessions(draw: st.DrawFn, response: float) -> SessionSpec:
    """A linear profile or one in steps, fast and slow accelerators, SLOs from hopeless to generous."""
    size = draw(st.sampled_from([8, 1, 3, 20]))
    alpha, beta = draw(st.sampled_from([(0.001, 0.005), (0.005, 0.001), (0.0, 0.01)]))
    steps = alpha * np.arange(size + 1)
    if draw(st.booleans()):
        steps = alpha * np.cumsum(
            draw(st.lists(st.sampled_from([0, 1, 4]), min_size=size + 1, max_size=size + 1))
        )
    fast = beta + steps
    fast[0] = 0.0
    slack, full = draw(st.sampled_from([(3.0, 0.5), (1.2, 0.0), (10.0, 1.0), (1.0, 2.0), (0.9, 0.0)]))
    slo = response + slack * fast[1] + full * fast[size]
    return SessionSpec(name=f"s{size}", slo=float(slo), latency=np.array([fast, 1.7 * fast]))


@st.composite
def cases(draw: st.DrawFn) -> PolicyCase:
    """Draw a small cluster and up to 50 requests, from idle to heavy overload, with ties and bursts."""
    delays = draw(st.sampled_from([Delays(), Delays(control=1e-4, data=5e-5, response=2e-3)]))
    sessions = draw(st.lists(_sessions(delays.response), min_size=1, max_size=4))
    kinds = draw(st.lists(st.integers(0, 1), min_size=1, max_size=4))
    gap = sessions[0].latency[0, -1] / (sessions[0].latency.shape[1] - 1) / len(kinds)
    gap /= draw(st.sampled_from([1.0, 0.02, 0.5, 3.0, 20.0]))
    steps = st.sampled_from([1.0, 0.0, 0.0, 0.1, 0.5, 2.0, 7.0])
    owners = st.integers(0, len(sessions) - 1)
    drawn = draw(st.lists(st.tuples(steps, owners, st.integers(0, 2)), min_size=8, max_size=50))
    times = np.cumsum([step * gap for step, _, _ in drawn]).tolist()
    arrivals = [(time, owner, source) for time, (_, owner, source) in zip(times, drawn, strict=True)]
    return PolicyCase(spec=ClusterSpec(sessions=sessions, kinds=kinds, delays=delays), arrivals=arrivals)


def overload() -> PolicyCase:
    """Return a case of 300 requests: three sessions on two unlike accelerators, a flood and then calm."""
    rng = np.random.default_rng(7)
    sizes = np.arange(17)
    sessions = []
    for name, alpha, beta, slo in (("a", 1e-3, 5e-3, 0.025), ("b", 5e-3, 1e-3, 0.04), ("c", 2e-3, 0.02, 0.2)):
        fast = np.where(sizes > 0, alpha * sizes + beta, 0.0)
        sessions.append(SessionSpec(name=name, slo=slo, latency=np.array([fast, 1.5 * fast])))
    gaps = rng.exponential(1.0, 300) * np.where(np.arange(300) < 200, 0.0004, 0.02)
    owners, sources = rng.integers(0, 3, 300).tolist(), rng.integers(0, 3, 300).tolist()
    arrivals = list(zip(np.cumsum(gaps).tolist(), owners, sources, strict=True))
    delays = Delays(control=1e-4, data=5e-5, response=2e-3)
    return PolicyCase(spec=ClusterSpec(sessions=sessions, kinds=[0, 1], delays=delays), arrivals=arrivals)


examined = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
)


class PolicyContract:
    """Inherit, and override :meth:`make`; set the flags to what the policy claims."""

    promises = False
    """Whether it sends no batch that ends after a deadline, as it expects itself."""
    central = True
    """Whether requests come from the scheduler: no batch starts before its data can be there."""
    reorders = False
    """Whether a request may be served before older ones of its queue."""
    sources = 1
    """How many frontends it knows."""
    distributes = False
    """Whether requests have sizes, and each is a batch of its own."""
    believes = True
    """Whether it believes the profile; if not, it may expect another time."""
    both_ends = False
    """Whether requests may leave a queue from its tail, too."""

    def make(self, spec: ClusterSpec) -> Any:
        """Return a fresh policy at time 0."""
        raise NotImplementedError("override `make`")

    def run(self, case: PolicyCase, stretch: Sequence[float] = (1.0,)) -> PolicyRun:
        """Drive a fresh policy through a case."""
        return drive(self.make(case.spec), self.arrivals(case), stretch, items=self.items(case))

    def arrivals(self, case: PolicyCase) -> list[tuple[float, int, int]]:
        """The requests of a case with sources that the policy knows."""
        return [(time, session, source % self.sources) for time, session, source in case.arrivals]

    def items(self, case: PolicyCase) -> list[int]:
        """The sizes of the requests of a case; empty if they have none."""
        if not self.distributes:
            return []
        largest = [session.latency.shape[1] - 1 for session in case.spec.sessions]
        return [1 + 7 * number % largest[owner] for number, (_, owner, _) in enumerate(case.arrivals)]

    @examined
    @given(case=cases())
    def test_every_request_is_answered_once(self, case: PolicyCase) -> None:
        """Every request is in one batch or refused, once, and none is invented."""
        assert_answered_once(case, self.run(case))

    @examined
    @given(case=cases())
    def test_oldest_first(self, case: PolicyCase) -> None:
        """Requests leave a queue from its head, the oldest first, and are of the session of the command."""
        assert_in_order(case, self.run(case), self.reorders, self.both_ends)

    @examined
    @given(case=cases())
    def test_batches_fit(self, case: PolicyCase) -> None:
        """A batch has at least one request, the size of its requests, and none that the profile lacks."""
        items = self.items(case) or [1] * len(case.arrivals)
        for _, command in self.run(case).batches:
            assert command.items == sum(items[number] for number in command.numbers)
            assert 1 <= command.items < case.spec.sessions[command.session].latency.shape[1]
            assert len(command.numbers) == 1 or not self.distributes
            assert 0 <= command.accelerator < len(case.spec.kinds)

    @examined
    @given(case=cases())
    def test_batches_never_overlap(self, case: PolicyCase) -> None:
        """On each accelerator a batch starts when the one before has ended, and lasts what the table says."""
        trace = self.run(case)

        free = dict.fromkeys(range(len(case.spec.kinds)), 0.0)
        for _, command in trace.batches:
            assert command.start >= free[command.accelerator] - TINY
            latency = believed(trace.policy[0], command)
            if self.believes:
                assert command.finish == pytest.approx(command.start + latency, abs=TINY)
            free[command.accelerator] = command.start + latency

    @examined
    @given(case=cases())
    def test_batches_start_when_the_data_is_there(self, case: PolicyCase) -> None:
        """Nothing starts before it was decided; nor, sent by a scheduler, before it can have arrived."""
        delays = case.spec.delays
        for now, command in self.run(case).batches:
            travel = delays.control + delays.data * len(command.numbers) if self.central else 0.0
            assert command.start >= now + travel - TINY

    @examined
    @given(case=cases())
    def test_no_promise_is_broken(self, case: PolicyCase) -> None:
        """No batch ends after the deadline of a request in it, by the policy's own reckoning."""
        if not self.promises:
            pytest.skip("this policy sends late batches, too")
        for _, command in self.run(case).batches:
            session = case.spec.sessions[command.session]
            oldest = min(case.arrivals[number][0] for number in command.numbers)
            assert command.finish <= oldest + session.slo - case.spec.delays.response + TINY

    @examined
    @given(case=cases())
    def test_time_goes_on(self, case: PolicyCase) -> None:
        """The next wake-up is never in the past, and `wake` moves it unless room for commands was lacking."""
        trace = self.run(case)

        for earlier, event in zip([None, *trace.events], trace.events, strict=False):
            assert earlier is None or event.now >= earlier.now
            assert event.wake_at >= event.now
            full = len(event.commands) == len(trace.policy[0].commands)
            assert event.kind != "wake" or event.wake_at > event.now or full

    @examined
    @given(case=cases())
    def test_replays_identically(self, case: PolicyCase) -> None:
        """A fresh policy answers the recorded events with the same commands, to the last bit."""
        recorded = self.run(case).events

        assert answers_again(self.make(case.spec), recorded) == recorded

    @examined
    @given(case=cases())
    def test_growing_changes_nothing(self, case: PolicyCase) -> None:
        """Whether rings begin tiny and grow, or are large enough, the commands are the same."""
        tiny, large = (
            drive(with_rings(self.make(case.spec), length), self.arrivals(case), items=self.items(case))
            for length in (2, 256)
        )

        assert tiny.events == large.events

    @examined
    @given(case=cases(), stretch=st.lists(st.sampled_from([1.0, 0.6, 1.3, 4.0]), min_size=1, max_size=5))
    def test_survives_surprises(self, case: PolicyCase, stretch: list[float]) -> None:
        """Batches that take more or less time than expected lose nothing, and the policy comes to rest."""
        trace = self.run(case, stretch)

        assert_answered_once(case, trace)
        assert_in_order(case, trace, self.reorders, self.both_ends)

    @settings(examined, max_examples=8)
    @given(case=cases())
    def test_begins_with_what_executes(self, case: PolicyCase) -> None:
        """An accelerator that executes a batch at time 0 gets the next one for when that has ended."""
        ends = 0.02  # s
        case = replace(case, spec=replace(case.spec, busy={0: ends}))
        trace = self.run(case)

        assert_answered_once(case, trace)
        starts = [command.start for _, command in trace.batches if command.accelerator == 0]
        assert min(starts, default=ends) >= ends - TINY
        assert not trace.policy[0].accelerators["outstanding"].any()

    def test_overload_passes(self) -> None:
        """After a flood all is answered, and of the last requests, which come slowly, most are served."""
        case = overload()

        trace = self.run(case)

        assert_answered_once(case, trace)
        assert_in_order(case, trace, self.reorders, self.both_ends)
        assert len(set(range(280, 300)) & set(trace.ended)) > 10
        assert not trace.policy[0].accelerators["outstanding"].any()


def assert_answered_once(case: PolicyCase, trace: PolicyRun) -> None:
    """Check that the commands hold every request once.

    Raises:
        AssertionError: One is missing, double or unknown.
    """
    numbers = [number for _, command in trace.commands for number in command.numbers]
    assert sorted(numbers) == list(range(len(case.arrivals)))


def assert_in_order(
    case: PolicyCase, trace: PolicyRun, reorders: bool = False, both_ends: bool = False
) -> None:
    """Check that every queue is emptied from the head, without gaps, and the oldest first unless it reorders.

    Unless it is emptied from both ends.

    Raises:
        AssertionError: A command takes others, or of another session.
    """
    head: dict[int, int] = {}
    newest: dict[int, float] = {}
    for _, command in trace.commands:
        assert both_ends or command.first == head.get(command.queue, 0)
        head[command.queue] = command.first + len(command.numbers)
        for number in command.numbers:
            arrival, session, _ = case.arrivals[number]
            assert session == command.session
            assert reorders or arrival >= newest.get(command.queue, -math.inf)
            newest[command.queue] = arrival
