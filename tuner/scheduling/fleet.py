"""When which accelerator will be free: the batches sent to it, and predictions corrected when they end.

A policy that sends a batch ahead, so that it arrives when the accelerator gets free, must predict that time.
It believes the profile until a batch ends:

* Ended as believed, or before: what is on the way starts as planned, for it is not there earlier.
* Ended later: the batches behind it start and end later by what it takes away from them.
* Should have ended by now, and has not: overdue. Nobody knows when this accelerator will be free, so nothing
  is sent to it until the batch ends.

Where accelerators are of several kinds, a batch may be in time on one and not on another. Those of each kind
therefore have a tree of their own, so that it is known of each kind which is free first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat, njit_inline
from tuner.scheduling.requests import dispatch
from tuner.scheduling.tournament import key_of, least_index, least_key, set_key, tree_of
from tuner.scheduling.vocabulary import TOLERANCE, Cluster, records

__all__ = [
    "AHEAD",
    "Fleet",
    "can_serve",
    "delay",
    "earliest",
    "earliest_of",
    "ended",
    "first_to_end",
    "free_at",
    "in_time",
    "largest_in_time",
    "make_fleet",
    "next_kind",
    "park",
    "send",
    "unpark",
]

AHEAD = 8
"""Batches that may be outstanding on one accelerator; with a slow network several are on the way at once."""

SENT = np.dtype(
    [
        ("start", "f8"),  # s, when its execution starts, as believed
        ("length", "f8"),  # s, how long it takes
    ],
    align=True,
)


class Fleet(NamedTuple):
    """What is believed of the accelerators. All arrays but ``kinds`` are modified in place."""

    free: np.ndarray  # tree over accelerators: when it is free, s; infinite if it can be sent nothing
    of_kind: np.ndarray  # (K, 2 P) the same of those of each kind only; no rows if all are of one kind
    kinds: np.ndarray  # (k,) the kinds that accelerators are of, in order
    sent: np.ndarray  # (N, AHEAD) SENT, the oldest first; the first `outstanding` of a row count


def make_fleet(cluster: Cluster) -> Fleet:
    """Return the state at time 0, when the accelerators execute at most one batch each."""
    free, kind = cluster.accelerators["free_at"], cluster.accelerators["kind"]  # (N,) s, (N,)
    sent = records((free.size, AHEAD), SENT)
    sent["start"][:, 0] = free  # with no length: only its end counts
    tree, kinds = tree_of(free), np.unique(kind).astype(np.int64)
    of_kind = np.full((cluster.latency.shape[0] if kinds.size > 1 else 0, tree.size), np.inf)
    for each in range(of_kind.shape[0]):
        of_kind[each] = tree_of(np.where(kind == each, free, np.inf))
    return Fleet(tree, of_kind, kinds, sent)


@njit_flat
def earliest(cluster: Cluster, fleet: Fleet) -> int:
    """Return the accelerator that is free first, -1 if of none it is known when.

    Overdue ones are taken out of the trees of ``fleet``, which is modified in place.
    """
    while least_key(fleet.free) < np.inf:
        accelerator = least_index(fleet.free)
        if not _is_overdue(cluster, fleet, accelerator):
            return int(accelerator)
        _set_free(cluster, fleet, accelerator, np.inf)
    return -1


@njit_flat
def earliest_of(cluster: Cluster, fleet: Fleet, kind: int) -> int:
    """Return :func:`earliest` of the accelerators of one kind, where there are several kinds."""
    while least_key(fleet.of_kind[kind]) < np.inf:
        accelerator = least_index(fleet.of_kind[kind])
        if not _is_overdue(cluster, fleet, accelerator):
            return int(accelerator)
        _set_free(cluster, fleet, accelerator, np.inf)
    return -1


@njit_inline
def _is_overdue(cluster: Cluster, fleet: Fleet, accelerator: int) -> bool:
    """Whether the batch that an accelerator executes should have ended by now."""
    if cluster.accelerators[accelerator].outstanding == 0:
        return False
    end = fleet.sent[accelerator, 0].start + fleet.sent[accelerator, 0].length
    return bool(end <= cluster.board[0].now)


@njit_inline
def _set_free(cluster: Cluster, fleet: Fleet, accelerator: int, free: float) -> None:
    """Note when an accelerator will be free, s. ``fleet`` is modified in place."""
    set_key(fleet.free, accelerator, free)
    if fleet.kinds.size > 1:
        set_key(fleet.of_kind[cluster.accelerators[accelerator].kind], accelerator, free)


@njit_flat
def free_at(fleet: Fleet, accelerator: int) -> float:
    """Return when an accelerator will be free, s; the past if it is idle."""
    return key_of(fleet.free, accelerator)


@njit_flat
def delay(cluster: Cluster, count: int) -> float:
    """Return the time from a decision until a batch of ``count`` requests is at the accelerator, s."""
    return float(cluster.board[0].d_control + cluster.board[0].d_data * count)


@njit_inline
def in_time(cluster: Cluster, session: int, kind: int, count: int, free: float, latest: float) -> bool:  # noqa: PLR0917 - a kernel has no keywords
    """Whether a batch that is sent now would end by a deadline.

    Args:
        cluster: Its ``board`` has the time, and the delays that are allowed for.
        session: Whose batch.
        kind: The kind of its accelerator.
        count: Requests in it, at least 1.
        free: When the accelerator is free, s.
        latest: The deadline, s.
    """
    start = max(cluster.board[0].now + delay(cluster, count), free)
    return bool(start + cluster.latency[kind, session, count] <= latest + TOLERANCE)


@njit_flat
def largest_in_time(  # noqa: PLR0917 - a kernel has no keywords
    cluster: Cluster, session: int, kind: int, low: int, high: int, free: float, latest: float
) -> int:
    """Return the largest batch in ``low..high`` that is :func:`in_time`; ``low`` is known to be, or is 0."""
    while low < high:
        middle = (low + high + 1) // 2
        if in_time(cluster, session, kind, middle, free, latest):
            low = middle
        else:
            high = middle - 1
    return low


@njit_flat
def can_serve(cluster: Cluster, session: int, kind: int) -> bool:
    """Whether a request of a session that is sent to a kind of accelerator when it comes can end in time."""
    alone = delay(cluster, 1) + cluster.latency[kind, session, 1]
    return bool(alone <= cluster.sessions[session].budget + TOLERANCE)


@njit_flat
def next_kind(cluster: Cluster, fleet: Fleet, session: int, count: int, latest: float) -> int:
    """Return the kind of the accelerator that is free first, of those that would do if they were free.

    What hangs is left out: nobody knows whether it will be free.

    Args:
        cluster: Its ``board`` has the time.
        fleet: What is known of the accelerators.
        session: Whose batch.
        count: Requests in it, at least 1.
        latest: By when it must end, s. If it does so on no kind, the fastest counts.
    """
    best, first, accelerator = -1, np.inf, -1
    for index in range(fleet.kinds.size):
        kind = fleet.kinds[index]
        if in_time(cluster, session, kind, count, -np.inf, latest) and not _hangs(cluster, fleet, kind):
            free, place = least_key(fleet.of_kind[kind]), least_index(fleet.of_kind[kind])
            if best < 0 or free < first or (free == first and place < accelerator):
                best, first, accelerator = kind, free, place
    return int(best) if best >= 0 else _fastest_kind(cluster, fleet, session, count)


@njit_flat
def _fastest_kind(cluster: Cluster, fleet: Fleet, session: int, count: int) -> int:
    """Return the kind on which a batch takes the least time; one that hangs only if no other can serve."""
    best, least = -1, (1, np.inf)
    for index in range(fleet.kinds.size):
        kind = fleet.kinds[index]
        useless = _hangs(cluster, fleet, kind) or not can_serve(cluster, session, kind)
        offer = (1 if useless else 0, cluster.latency[kind, session, count])
        if best < 0 or offer < least:
            best, least = kind, offer
    return int(best)


@njit_flat
def _hangs(cluster: Cluster, fleet: Fleet, kind: int) -> bool:
    """Whether each accelerator of a kind is late with its batch by more than that takes: it may never end."""
    if least_key(fleet.of_kind[kind]) < np.inf:
        return False
    for accelerator in range(cluster.accelerators.size):
        if cluster.accelerators[accelerator].kind == kind:
            end = fleet.sent[accelerator, 0].start + 2 * fleet.sent[accelerator, 0].length
            if cluster.accelerators[accelerator].outstanding == 0 or end >= cluster.board[0].now:
                return False
    return True


@njit_flat
def first_to_end(cluster: Cluster, fleet: Fleet, session: int, count: int) -> int:
    """Return the accelerator on which a batch that is sent now ends first, -1 if of none it is known when.

    Overdue ones are taken out of the trees of ``fleet``, which is modified in place.
    """
    best, first = -1, np.inf
    sent = cluster.board[0].now + delay(cluster, count)
    for index in range(fleet.kinds.size):
        kind = fleet.kinds[index]
        accelerator = earliest_of(cluster, fleet, kind)
        if accelerator >= 0:
            end = max(sent, free_at(fleet, accelerator)) + cluster.latency[kind, session, count]
            if best < 0 or end < first:
                best, first = accelerator, end
    return best


@njit_flat
def send(cluster: Cluster, fleet: Fleet, queue: int, count: int, accelerator: int) -> None:
    """Send the ``count`` oldest requests of a queue to an accelerator, to start when both are there.

    Args:
        cluster: Gets the command; modified in place.
        fleet: Learns of the batch; modified in place.
        queue: The queue; loses the requests.
        count: How many, at least 1.
        accelerator: One that :func:`earliest` gave.
    """
    start = max(cluster.board[0].now + delay(cluster, count), free_at(fleet, accelerator))
    end = dispatch(cluster, queue, count, accelerator, start)
    outstanding = cluster.accelerators[accelerator].outstanding
    kind = cluster.accelerators[accelerator].kind
    fleet.sent[accelerator, outstanding - 1].start = start
    fleet.sent[accelerator, outstanding - 1].length = cluster.latency[
        kind, cluster.queues[queue].session, count
    ]
    _set_free(cluster, fleet, accelerator, end if outstanding < AHEAD else np.inf)


@njit_flat
def ended(cluster: Cluster, fleet: Fleet, accelerator: int) -> None:
    """Note that the oldest batch of an accelerator has just ended. Both states are modified in place."""
    outstanding = cluster.accelerators[accelerator].outstanding - 1
    end = cluster.board[0].now
    for index in range(outstanding):
        start = max(fleet.sent[accelerator, index + 1].start, end)
        length = fleet.sent[accelerator, index + 1].length
        fleet.sent[accelerator, index].start = start
        fleet.sent[accelerator, index].length = length
        end = start + length
    cluster.accelerators[accelerator].outstanding = outstanding
    cluster.accelerators[accelerator].free_at = end
    _set_free(cluster, fleet, accelerator, end)


def park(cluster: Cluster, fleet: Fleet, accelerator: int) -> bool:
    """Take an accelerator out of use: nothing more is sent to it, as if a batch without end had been.

    What it was sent before is still executed. Returns False, and changes nothing, if so much of that is
    outstanding that there is no room for one more batch. Both states are modified in place.
    """
    outstanding = int(cluster.accelerators[accelerator].outstanding)
    if outstanding == AHEAD:
        return False
    fleet.sent[accelerator, outstanding] = (0.0, np.inf)
    cluster.accelerators[accelerator].outstanding = outstanding + 1
    _set_free(cluster, fleet, accelerator, np.inf)
    return True


def unpark(cluster: Cluster, fleet: Fleet, accelerator: int) -> None:
    """Put a parked accelerator back into use. Both states are modified in place."""
    outstanding = int(cluster.accelerators[accelerator].outstanding) - 1
    cluster.accelerators[accelerator].outstanding = outstanding
    last = fleet.sent[accelerator, outstanding - 1]
    free = float(last["start"] + last["length"]) if outstanding else float(cluster.board[0].now)
    cluster.accelerators[accelerator].free_at = free
    _set_free(cluster, fleet, accelerator, free)
