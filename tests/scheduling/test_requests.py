"""Queues and commands: what is taken in, sent and dropped, and what is noted of it."""

from __future__ import annotations

import math

import pytest

from tests.scheduling.scenarios import MS, one
from tuner.scheduling.cluster import FIRST_RING, build_cluster
from tuner.scheduling.requests import begin, deadline, dispatch, drop, has_room, push, waiting
from tuner.scheduling.vocabulary import DISPATCH, DROP, FULL, OK, Cluster


@pytest.fixture
def cluster() -> Cluster:
    return build_cluster(one(1 * MS, 5 * MS, 25 * MS, response=2 * MS), commands=3)


def test_requests_wait_in_order(cluster: Cluster) -> None:
    """What was pushed waits, with deadlines that allow for the response."""
    begin(cluster, 1 * MS)
    assert push(cluster, 0, 7, 1 * MS) == OK
    assert push(cluster, 0, 8, 2 * MS) == OK

    assert waiting(cluster, 0) == 2
    assert [deadline(cluster, 0, position) for position in (0, 1)] == pytest.approx([24 * MS, 25 * MS])


def test_a_full_ring_takes_nothing(cluster: Cluster) -> None:
    """The request after the last that fits is not taken in; after a drop there is room again."""
    assert [push(cluster, 0, number, 0.0) for number in range(FIRST_RING)] == [OK] * FIRST_RING

    assert push(cluster, 0, 99, 0.0) == FULL
    assert waiting(cluster, 0) == FIRST_RING
    drop(cluster, 0, 1)
    assert push(cluster, 0, 99, 0.0) == OK
    assert cluster.waiting[0, FIRST_RING & (FIRST_RING - 1)].number == 99


def test_dispatch_notes_the_batch_and_the_accelerator(cluster: Cluster) -> None:
    """The command says what goes where and when; the accelerator is busy until then."""
    for number in range(3):
        push(cluster, 0, number, 0.0)
    begin(cluster, 1 * MS)

    assert dispatch(cluster, 0, 2, 0, 3 * MS) == pytest.approx(10 * MS)
    command = cluster.commands[0]
    assert (command.kind, command.session, command.queue) == (DISPATCH, 0, 0)
    assert (command.first, command.count, command.accelerator) == (0, 2, 0)
    assert (command.start, command.finish) == pytest.approx((3 * MS, 10 * MS))
    assert cluster.accelerators[0].free_at == pytest.approx(10 * MS)
    assert cluster.accelerators[0].outstanding == 1
    assert waiting(cluster, 0) == 1


def test_drop_notes_the_refusal(cluster: Cluster) -> None:
    """A drop belongs to no accelerator and has no times."""
    push(cluster, 0, 0, 0.0)
    drop(cluster, 0, 1)

    command = cluster.commands[0]
    assert (command.kind, command.count, command.accelerator) == (DROP, 1, -1)
    assert math.isnan(command.start)
    assert math.isnan(command.finish)
    assert waiting(cluster, 0) == 0


def test_an_event_forgets_the_commands_before(cluster: Cluster) -> None:
    """Commands are counted per event, and there is room for a certain number."""
    for number in range(4):
        push(cluster, 0, number, 0.0)
    for _ in range(3):
        assert has_room(cluster)
        drop(cluster, 0, 1)
    assert not has_room(cluster)

    begin(cluster, 5 * MS)

    assert cluster.board[0].commands == 0
    assert cluster.board[0].now == 5 * MS
    assert has_room(cluster)


def test_a_nearer_deadline_overtakes(cluster: Cluster) -> None:
    """A request whose deadline is before that of its session's SLO stands before those with later ones."""
    for number, (time, early) in enumerate([(0.0, 0.0), (1 * MS, 0.0), (2 * MS, 1.5 * MS), (3 * MS, 9 * MS)]):
        cluster.board[0].early = early
        push(cluster, 0, number, time)

    assert cluster.waiting["number"][0, :4].tolist() == [3, 0, 2, 1]
    assert deadline(cluster, 0, 2) == pytest.approx(23.5 * MS)
