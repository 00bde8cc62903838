"""When which accelerator will be free: the batches sent to it, and predictions corrected when they end.

A policy that sends a batch ahead, so that it arrives when the accelerator gets free, must predict that time.
It believes the profile until a batch ends:

* Ended as believed, or before: what is on the way starts as planned, for it is not there earlier.
* Ended later: the batches behind it start and end later by what it takes away from them.
* Should have ended by now, and has not: overdue. Nobody knows when this accelerator will be free, so nothing
  is sent to it until the batch ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat, njit_inline
from tuner.scheduling.requests import dispatch
from tuner.scheduling.tournament import key_of, least_index, least_key, set_key, tree_of
from tuner.scheduling.vocabulary import Cluster, records

__all__ = [
    "AHEAD",
    "TOLERANCE",
    "Fleet",
    "delay",
    "earliest",
    "ended",
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
TOLERANCE = 5e-10
"""s by which rounding may let a batch end after a deadline; half of what drivers forgive."""

SENT = np.dtype(
    [
        ("start", "f8"),  # s, when its execution starts, as believed
        ("length", "f8"),  # s, how long it takes
    ],
    align=True,
)


class Fleet(NamedTuple):
    """What is believed of the accelerators. Both arrays are modified in place."""

    free: np.ndarray  # tree over accelerators: when it is free, s; infinite if it can be sent nothing
    sent: np.ndarray  # (N, AHEAD) SENT, the oldest first; the first `outstanding` of a row count


def make_fleet(cluster: Cluster) -> Fleet:
    """Return the state at time 0, when the accelerators execute at most one batch each."""
    free = cluster.accelerators["free_at"]  # (N,) s
    sent = records((free.size, AHEAD), SENT)
    sent["start"][:, 0] = free  # with no length: only its end counts
    return Fleet(tree_of(free), sent)


@njit_flat
def earliest(cluster: Cluster, fleet: Fleet) -> int:
    """Return the accelerator that is free first, -1 if of none it is known when.

    Overdue ones are taken out of ``fleet.free``, which is modified in place.
    """
    now = cluster.board[0].now
    while least_key(fleet.free) < np.inf:
        accelerator = least_index(fleet.free)
        if cluster.accelerators[accelerator].outstanding == 0:
            return int(accelerator)
        if fleet.sent[accelerator, 0].start + fleet.sent[accelerator, 0].length > now:
            return int(accelerator)
        set_key(fleet.free, accelerator, np.inf)
    return -1


@njit_flat
def free_at(fleet: Fleet, accelerator: int) -> float:
    """Return when an accelerator will be free, s; the past if it is idle."""
    return key_of(fleet.free, accelerator)


@njit_flat
def next_kind(cluster: Cluster, fleet: Fleet) -> int:
    """Return the kind of the accelerator that is free first; of any if of none it is known when."""
    if cluster.latency.shape[0] == 1:
        return 0
    return int(cluster.accelerators[least_index(fleet.free)].kind)


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
    set_key(fleet.free, accelerator, end if outstanding < AHEAD else np.inf)


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
    set_key(fleet.free, accelerator, end)


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
    set_key(fleet.free, accelerator, np.inf)
    return True


def unpark(cluster: Cluster, fleet: Fleet, accelerator: int) -> None:
    """Put a parked accelerator back into use. Both states are modified in place."""
    outstanding = int(cluster.accelerators[accelerator].outstanding) - 1
    cluster.accelerators[accelerator].outstanding = outstanding
    last = fleet.sent[accelerator, outstanding - 1]
    free = float(last["start"] + last["length"]) if outstanding else float(cluster.board[0].now)
    cluster.accelerators[accelerator].free_at = free
    set_key(fleet.free, accelerator, free)
