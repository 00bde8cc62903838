"""What distribution policies share: the instances, and how a request is sent to one of them.

A request has a size in items, executes alone, as a batch of its own size, and may be sent before older ones.
As a queue loses its requests from the head, a request from the middle is first moved to the head; the older
ones keep their order.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from tuner._jit import njit_flat, njit_inline
from tuner.scheduling.requests import arrival_of, begin, dispatch_alone, drop, items_of, move_forward, push
from tuner.scheduling.vocabulary import NEVER, OK, TOLERANCE, Cluster, records

__all__ = [
    "Pool",
    "Pooled",
    "base_instances",
    "ended",
    "enqueue",
    "finish",
    "make_pool",
    "oldest",
    "refuse_request",
    "send_oldest",
    "send_request",
    "speed_order",
    "travel",
]

RUNNING = np.dtype(
    [
        ("start", "f8"),  # s, when its request began to execute, as believed
        ("length", "f8"),  # s, how long it takes, as believed
        ("session", "i8"),  # of that request
        ("items", "i8"),  # of that request, 0 if it is not known
    ],
    align=True,
)
STATE = np.dtype(
    [
        ("idle", "i8"),  # instances that execute nothing
        ("waiting", "i8"),  # requests of all sessions
    ],
    align=True,
)


class Pool(NamedTuple):
    """What the instances do. Both arrays are modified in place."""

    state: np.ndarray  # (1,) STATE
    running: np.ndarray  # (N,) RUNNING; of idle instances the request before


class Pooled(Protocol):
    """The part of a policy's state that its events work on here."""

    @property
    def cluster(self) -> Cluster:
        """What every policy knows."""

    @property
    def pool(self) -> Pool:
        """What the instances do."""


def make_pool(cluster: Cluster) -> Pool:
    """Return the state at time 0, when the instances execute at most one request each."""
    state = records(1, STATE)
    state[0].idle = cluster.accelerators.size - np.count_nonzero(cluster.accelerators["outstanding"])
    return Pool(state, records(cluster.accelerators.shape, RUNNING))


def base_instances(cluster: Cluster) -> np.ndarray:
    """Return per accelerator and session whether it is a base instance.   # (N, M) bool.

    One meets the SLO at the largest size, with the way there. If none does, the fastest are taken for such.
    """
    time, board = _largest_times(cluster), cluster.board[0]
    base = time + (board.d_control + board.d_data) <= cluster.sessions["budget"] + TOLERANCE
    return np.asarray(np.where(base.any(axis=0), base, time == time.min(axis=0)))


def speed_order(cluster: Cluster) -> np.ndarray:
    """Return the accelerators from the fastest kind at the largest size on.   # (N,).

    Of several sessions the mean counts, each relative to its fastest accelerator.
    """
    time = _largest_times(cluster)
    return np.argsort((time / time.min(axis=0)).mean(axis=1), kind="stable")


def _largest_times(cluster: Cluster) -> np.ndarray:
    """Return per accelerator and session how long the largest request takes.   # (N, M) s."""
    largest = cluster.sessions["largest"]
    time = np.take_along_axis(cluster.latency, largest[None, :, None], axis=2)[:, :, 0]  # (K, M) s
    return np.asarray(time[cluster.accelerators["kind"]])


@njit_inline
def enqueue(policy: Pooled, queue: int, number: int, now: float) -> int:
    """Append a request that arrives now to a queue, and ask for ``wake`` at once if an instance is idle."""
    cluster, pool = policy.cluster, policy.pool
    status = push(cluster, queue, number, now)
    if status == OK:
        pool.state[0].waiting += 1
        if pool.state[0].idle:
            cluster.board[0].wake_at = now
    return status


@njit_flat
def finish(policy: Pooled, accelerator: int, now: float) -> int:
    """See :func:`tuner.scheduling.policy.finish`: asks for ``wake`` at once if a request waits."""
    ended(policy, accelerator, now)
    policy.cluster.board[0].wake_at = now if policy.pool.state[0].waiting else NEVER
    return OK


@njit_flat
def travel(cluster: Cluster) -> float:
    """Return the time from a decision until a request is at its instance, s."""
    return float(cluster.board[0].d_control + cluster.board[0].d_data)


@njit_flat
def oldest(cluster: Cluster, first: int, end: int) -> int:
    """Return which of the queues ``first`` to before ``end`` has the oldest head; -1 if all are empty."""
    found, earliest = -1, np.inf
    for queue in range(first, end):
        head = cluster.queues[queue].head
        if head < cluster.queues[queue].tail and arrival_of(cluster, queue, head) < earliest:
            found, earliest = queue, arrival_of(cluster, queue, head)
    return found


@njit_flat
def send_request(  # noqa: PLR0917 - a kernel has no keywords
    cluster: Cluster, pool: Pool, queue: int, position: int, accelerator: int, length: float
) -> None:
    """Send a waiting request to an idle instance.

    Args:
        cluster: Gets the command; modified in place.
        pool: Learns of it; modified in place.
        queue: Where it waits.
        position: Its place there; older ones move up by one place.
        accelerator: The instance.
        length: How long it takes, as believed, s.
    """
    move_forward(cluster, queue, position, cluster.queues[queue].head)
    start = cluster.board[0].now + travel(cluster)
    dispatch_alone(cluster, queue, accelerator, start, length)
    pool.state[0].idle -= 1
    pool.state[0].waiting -= 1
    pool.running[accelerator].start = start
    pool.running[accelerator].length = length
    pool.running[accelerator].session = cluster.queues[queue].session
    pool.running[accelerator].items = cluster.commands[cluster.board[0].commands - 1].items


@njit_flat
def send_oldest(cluster: Cluster, pool: Pool, queue: int, accelerator: int) -> None:
    """Send the oldest request of a queue to an idle instance; it takes what the profile says."""
    head = cluster.queues[queue].head
    kind, session = cluster.accelerators[accelerator].kind, cluster.queues[queue].session
    length = cluster.latency[kind, session, items_of(cluster, queue, head)]
    send_request(cluster, pool, queue, head, accelerator, length)


@njit_flat
def refuse_request(cluster: Cluster, pool: Pool, queue: int, position: int) -> None:
    """Refuse a waiting request; older ones of its queue move up by one place. Modifies both states."""
    move_forward(cluster, queue, position, cluster.queues[queue].head)
    drop(cluster, queue, 1)
    pool.state[0].waiting -= 1


@njit_flat
def ended(policy: Pooled, accelerator: int, now: float) -> float:
    """Begin the event in which an instance has ended its request; return how long that took, s."""
    cluster, pool = policy.cluster, policy.pool
    begin(cluster, now)
    cluster.accelerators[accelerator].outstanding -= 1
    cluster.accelerators[accelerator].free_at = now
    pool.state[0].idle += 1
    return float(now - pool.running[accelerator].start)
