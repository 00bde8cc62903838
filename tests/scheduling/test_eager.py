"""The eager scheduler: traces computed by hand, and its plain twin on random scenarios."""

from __future__ import annotations

import pytest

from tests.scheduling.drive import DROPPED, SENT, drive
from tests.scheduling.naive_symphony import NaiveEager
from tests.scheduling.scenarios import MS, assert_twin, linear, one, random_scenario, sent
from tuner.scheduling.cluster import ClusterSpec
from tuner.scheduling.eager import build


def test_an_idle_accelerator_waits_for_nothing() -> None:
    """A request is sent when it comes; those that come while it executes make the next batch."""

    log = drive(build(one(1 * MS, 5 * MS, 25 * MS)), [(0.0, 0), (1 * MS, 0), (2 * MS, 0)])

    assert sent(log) == [(0.0, (0,)), (6.0, (1, 2))]


def test_the_earliest_deadline_goes_first() -> None:
    """Of two sessions that wait, the one whose oldest request must end first is taken."""
    spec = ClusterSpec(
        sessions=[linear("a", 1 * MS, 5 * MS, 60 * MS), linear("b", 1 * MS, 5 * MS, 30 * MS)], kinds=[0]
    )

    log = drive(build(spec), [(0.0, 0), (1 * MS, 0), (2 * MS, 1)])

    assert [entry.session for entry in log if entry.kind == SENT] == [0, 1, 0]


def test_a_batch_ends_by_its_oldest_deadline() -> None:
    """At 6 ms request 1, due at 21, allows l(10) = 15 ms: of 12 that wait ten are taken."""

    log = drive(build(one(1 * MS, 5 * MS, 20 * MS)), [(0.0, 0)] + [(1 * MS, 0)] * 12)

    assert [len(numbers) for _, numbers in sent(log)] == [1, 10]
    assert sent(log, DROPPED) == [(21.0, (11, 12))]


def test_sends_ahead_so_that_the_batch_arrives_when_the_accelerator_is_free() -> None:
    """With a control delay of 2 ms the batch after the first, which ends at 8 ms, is sent at 6."""

    log = drive(build(one(1 * MS, 5 * MS, 40 * MS, control=2 * MS)), [(0.0, 0), (1 * MS, 0)])

    assert sent(log) == [(0.0, (0,)), (6.0, (1,))]


@pytest.mark.parametrize("seed", range(20))
def test_equals_the_plain_twin(seed: int) -> None:
    """On random clusters and loads the twin gives the same commands at the same times."""
    scenario = random_scenario(seed)

    assert assert_twin(build(scenario.spec), NaiveEager(scenario.spec), scenario) > 0
