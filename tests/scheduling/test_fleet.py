"""What a policy believes about accelerators, and how events correct it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.scheduling.scenarios import MS, one
from tuner.scheduling.cluster import ClusterSpec, SessionSpec, build_cluster
from tuner.scheduling.fleet import (
    AHEAD,
    Fleet,
    earliest,
    earliest_of,
    ended,
    first_to_end,
    free_at,
    make_fleet,
    next_kind,
    park,
    send,
    unpark,
)
from tuner.scheduling.requests import begin, push
from tuner.scheduling.vocabulary import Cluster

Pair = tuple[Cluster, Fleet]


@pytest.fixture
def pair() -> Pair:
    """Two accelerators with l(b) = 5 b + 5 ms, 3 ms away, and 20 requests at 0."""
    cluster = build_cluster(one(5 * MS, 5 * MS, 1.0, accelerators=2, control=3 * MS))
    for number in range(20):
        push(cluster, 0, number, 0.0)
    return cluster, make_fleet(cluster)


def test_the_accelerator_that_is_free_first_is_next(pair: Pair) -> None:
    """First the idle one with the lowest number, then the other, then the one whose batch ends first."""
    chosen = []
    for count in (2, 1, 1):
        chosen.append(earliest(*pair))
        send(*pair, 0, count, chosen[-1])

    assert chosen == [0, 1, 1]
    assert [free_at(pair[1], accelerator) for accelerator in (0, 1)] == pytest.approx([18 * MS, 23 * MS])


def test_a_batch_starts_when_it_and_the_accelerator_are_there(pair: Pair) -> None:
    """The first after the delay, the second after the first."""
    cluster, fleet = pair
    send(cluster, fleet, 0, 1, 0)
    send(cluster, fleet, 0, 1, 0)

    assert [cluster.commands[index].start for index in (0, 1)] == pytest.approx([3 * MS, 13 * MS])
    assert cluster.accelerators[0].outstanding == 2


def test_an_overdue_accelerator_is_not_free(pair: Pair) -> None:
    """After the believed end nothing is known until the event of the end comes."""
    cluster, fleet = pair
    send(cluster, fleet, 0, 1, 0)
    send(cluster, fleet, 0, 1, 1)

    begin(cluster, 14 * MS)
    assert earliest(cluster, fleet) == -1

    begin(cluster, 15 * MS)
    ended(cluster, fleet, 1)
    assert earliest(cluster, fleet) == 1
    assert free_at(fleet, 1) == 15 * MS


def test_delay_goes_through_the_batches_behind(pair: Pair) -> None:
    """Of three of 10 ms from 3 ms on, the first ends at 15, so the last at 35; an early end is no change."""
    cluster, fleet = pair
    for _ in range(3):
        send(cluster, fleet, 0, 1, 0)

    begin(cluster, 15 * MS)
    ended(cluster, fleet, 0)
    assert free_at(fleet, 0) == pytest.approx(35 * MS)

    begin(cluster, 20 * MS)
    ended(cluster, fleet, 0)
    assert free_at(fleet, 0) == pytest.approx(35 * MS)
    assert cluster.accelerators[0].free_at == free_at(fleet, 0)


def test_only_so_many_batches_are_on_the_way(pair: Pair) -> None:
    """An accelerator with the most outstanding gets nothing more until one has ended."""
    cluster, fleet = pair
    for _ in range(AHEAD):
        send(cluster, fleet, 0, 1, 0)
    assert free_at(fleet, 0) == np.inf

    begin(cluster, 13 * MS)
    ended(cluster, fleet, 0)

    assert free_at(fleet, 0) == pytest.approx((3 + 10 * AHEAD) * MS)


def test_what_executes_at_the_beginning() -> None:
    """It ends when it should, or is overdue and keeps its accelerator from getting more."""
    cluster = build_cluster(replace(one(5 * MS, 5 * MS, 1.0, accelerators=3), busy={0: 4 * MS, 2: -1 * MS}))
    fleet = make_fleet(cluster)

    assert [free_at(fleet, accelerator) for accelerator in (0, 1)] == [4 * MS, 0.0]
    assert earliest(cluster, fleet) == 1
    begin(cluster, 3 * MS)
    ended(cluster, fleet, 2)
    assert free_at(fleet, 2) == 3 * MS
    assert not cluster.accelerators[2].outstanding


@pytest.fixture
def unlike() -> Pair:
    """A slow accelerator, l(1) = 20 and l(2) = 40 ms, and two fast ones, 5 and 6 ms; ten requests at 0."""
    latency = np.array([[0.0, 5, 6], [0.0, 20, 40]]) * MS
    spec = ClusterSpec(sessions=[SessionSpec(name="a", slo=30 * MS, latency=latency)], kinds=[1, 0, 0])
    cluster = build_cluster(spec)
    for number in range(10):
        push(cluster, 0, number, 0.0)
    return cluster, make_fleet(cluster)


def test_of_the_kinds_that_would_be_in_time_the_one_free_first_is_next(unlike: Pair) -> None:
    """The slow one has the lowest number, but not for two requests; the fastest counts if none is in time."""
    assert [next_kind(*unlike, 0, count, 30 * MS) for count in (1, 2)] == [1, 0]

    send(*unlike, 0, 1, 0)

    assert [next_kind(*unlike, 0, 1, latest * MS) for latest in (30, 1)] == [0, 0]
    assert [earliest_of(*unlike, kind) for kind in (0, 1)] == [1, 0]


def test_of_unlike_accelerators_that_on_which_a_batch_ends_first(unlike: Pair) -> None:
    """With the fast ones busy until 20 ms it is the idle one first, and a fast one once that is busy, too."""
    cluster, fleet = unlike
    for accelerator in (1, 2):
        for _ in range(4):
            send(cluster, fleet, 0, 1, accelerator)
    assert first_to_end(cluster, fleet, 0, 1) == 0

    send(cluster, fleet, 0, 1, 0)

    assert first_to_end(cluster, fleet, 0, 1) == 1


def test_what_is_parked_or_overdue_is_of_no_kind(unlike: Pair) -> None:
    """The trees of the kinds know what that of all accelerators knows."""
    cluster, fleet = unlike
    park(cluster, fleet, 1)
    assert earliest_of(cluster, fleet, 0) == 2
    send(cluster, fleet, 0, 1, 2)

    begin(cluster, 5 * MS)
    assert earliest_of(cluster, fleet, 0) == -1
    assert first_to_end(cluster, fleet, 0, 1) == 0

    ended(cluster, fleet, 2)
    assert earliest_of(cluster, fleet, 0) == 2
    unpark(cluster, fleet, 1)
    send(cluster, fleet, 0, 1, 2)
    assert earliest_of(cluster, fleet, 0) == 1
