"""The eager scheduler: traces computed by hand, and its plain twin on random scenarios."""

from __future__ import annotations

import pytest

from tests.scheduling.batching.naive_symphony import NaiveEager
from tests.scheduling.scenarios import MS, at, dropped, linear, one, random_scenario, sent, unlike_scenario
from tests.scheduling.twin import assert_twin
from tuner.scheduling.batching.eager import build
from tuner.scheduling.cluster import ClusterSpec
from tuner.testing.driver import drive


def test_an_idle_accelerator_waits_for_nothing() -> None:
    """A request is sent when it comes; those that come while it executes make the next batch."""

    trace = drive(build(one(1 * MS, 5 * MS, 25 * MS)), at(0, 1, 2))

    assert sent(trace) == [(0.0, (0,)), (6.0, (1, 2))]


def test_the_earliest_deadline_goes_first() -> None:
    """Of two sessions that wait, the one whose oldest request must end first is taken."""
    spec = ClusterSpec(
        sessions=[linear("a", 1 * MS, 5 * MS, 60 * MS), linear("b", 1 * MS, 5 * MS, 30 * MS)], kinds=[0]
    )

    trace = drive(build(spec), at(0, 1) + at(2, session=1))

    assert [batch.session for _, batch in trace.batches] == [0, 1, 0]


def test_a_batch_ends_by_its_oldest_deadline() -> None:
    """At 6 ms request 1, due at 21, allows l(10) = 15 ms: of 12 that wait ten are taken."""

    trace = drive(build(one(1 * MS, 5 * MS, 20 * MS)), at(0) + at(1) * 12)

    assert [len(numbers) for _, numbers in sent(trace)] == [1, 10]
    assert dropped(trace) == [(21.0, (11, 12))]


def test_sends_ahead_so_that_the_batch_arrives_when_the_accelerator_is_free() -> None:
    """With a control delay of 2 ms the batch after the first, which ends at 8 ms, is sent at 6."""

    trace = drive(build(one(1 * MS, 5 * MS, 40 * MS, control=2 * MS)), at(0, 1))

    assert sent(trace) == [(0.0, (0,)), (6.0, (1,))]


@pytest.mark.parametrize("seed", range(20))
def test_equals_the_plain_twin(seed: int) -> None:
    """On random clusters and loads the twin gives the same commands at the same times."""
    scenario = random_scenario(seed)

    trace = drive(build(scenario.spec), scenario.arrivals, scenario.stretch)

    assert trace.commands
    assert_twin(trace.events, NaiveEager(scenario.spec), within=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_equals_the_plain_twin_on_unlike_accelerators(seed: int) -> None:
    """So it does where some accelerators are too slow for some sessions."""
    scenario = unlike_scenario(seed)

    trace = drive(build(scenario.spec), scenario.arrivals, scenario.stretch)

    assert trace.commands
    assert_twin(trace.events, NaiveEager(scenario.spec), within=1e-9)
