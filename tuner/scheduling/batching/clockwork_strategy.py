"""The strategies of Clockwork: for each session and batch size, who waits, and how urgent a batch is.

A session's requests lie in one ring, in order of their deadlines, and a queue is a position in it: what it
holds are the requests from there on. Positions do not fall with the size. A batch may begin behind the
oldest request, which is still good for smaller sizes; as commands take the oldest, such a batch is first
moved before what stands before it (both keep their order), and all positions are moved along. That costs a
step per request moved, which only matters in overload.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat
from tuner.scheduling.requests import deadline, drop
from tuner.scheduling.tournament import key_of, set_key
from tuner.scheduling.vocabulary import TOLERANCE, Cluster

__all__ = [
    "Clockwork",
    "admit",
    "bring_forward",
    "compare",
    "drop_lost",
    "earliest_start",
    "enlarge",
    "expire",
]


class Clockwork(NamedTuple):
    """The state; all arrays are modified in place, but for the rule, the kinds and the sizes."""

    cluster: Cluster
    rule: np.ndarray  # (1,) RULE
    kinds: np.ndarray  # (k,) kinds that an accelerator has; tables have rows for the others, too
    sizes: np.ndarray  # (S,) batch sizes, rising
    usable: np.ndarray  # (M,) how many of them, the smallest, the session may have
    estimate: np.ndarray  # (K, M, S) s, execution time
    heads: np.ndarray  # (K, M, S) position of the first request in the queue of that size
    runnable: np.ndarray  # (K, M) how many sizes, the smallest, have enough requests
    chosen: np.ndarray  # (K, M) index of the size whose strategy comes first
    strategies: np.ndarray  # (K, 2 P) trees over sessions: priority of their first strategy, s
    free: np.ndarray  # (K, 2 P) trees over accelerators of the kind: when they are free, s
    lines: np.ndarray  # (N,) LINE
    outstanding: np.ndarray  # (N, D) BATCH, rings; D is a power of 2
    runs: np.ndarray  # (K, M, S, WINDOW) s, measured execution times, or empty
    measured: np.ndarray  # (K, M, S) how many were measured


@njit_flat
def earliest_start(policy: Clockwork, accelerator: int, size: int, now: float) -> float:
    """Return when a batch sent now can start, s."""
    board = policy.cluster.board[0]
    sent = now + board.d_control + board.d_data * size
    return float(max(policy.cluster.accelerators[accelerator].free_at, sent))


@njit_flat
def _priority(policy: Clockwork, kind: int, session: int, index: int) -> float:
    """Return when the strategy of a size has to start, s."""
    latest = deadline(policy.cluster, session, policy.heads[kind, session, index])
    return float(latest - policy.estimate[kind, session, index])


@njit_flat
def admit(policy: Clockwork, kind: int, session: int) -> None:
    """Take in a request that has just arrived at the end: at most the next larger size now has enough."""
    index = policy.runnable[kind, session]
    if index == policy.usable[session]:
        return
    held = policy.cluster.queues[session].tail - policy.heads[kind, session, index]
    if held < policy.sizes[index]:
        return
    policy.runnable[kind, session] = index + 1
    priority = _priority(policy, kind, session, index)
    if priority < key_of(policy.strategies[kind], session):
        policy.chosen[kind, session] = index
        set_key(policy.strategies[kind], session, priority)


@njit_flat
def compare(policy: Clockwork, kind: int, session: int) -> None:
    """Find out which sizes of a session have enough requests, and which of them comes first."""
    tail = policy.cluster.queues[session].tail
    index, best = 0, np.inf
    while index < policy.usable[session]:
        if tail - policy.heads[kind, session, index] < policy.sizes[index]:
            break
        priority = _priority(policy, kind, session, index)
        if priority < best:
            best = priority
            policy.chosen[kind, session] = index
        index += 1
    policy.runnable[kind, session] = index
    set_key(policy.strategies[kind], session, best)


@njit_flat
def expire(policy: Clockwork, accelerator: int, session: int, index: int, now: float) -> int:
    """Take requests too late for a size out of its queue and of those of larger ones; return how many.

    What had left a larger size's queue before does not come back.
    """
    cluster, kind = policy.cluster, policy.cluster.accelerators[accelerator].kind
    end = (
        earliest_start(policy, accelerator, policy.sizes[index], now) + policy.estimate[kind, session, index]
    )
    head = policy.heads[kind, session, index]
    while head < cluster.queues[session].tail and deadline(cluster, session, head) + TOLERANCE < end:
        head += 1
    gone = head - policy.heads[kind, session, index]
    if gone:
        for larger in range(index, policy.usable[session]):
            policy.heads[kind, session, larger] = max(head, policy.heads[kind, session, larger])
    return int(gone)


@njit_flat
def enlarge(policy: Clockwork, accelerator: int, session: int, now: float) -> int:
    """Return the index of the largest size that its queue fills, not below that of the chosen strategy."""
    kind = policy.cluster.accelerators[accelerator].kind
    for index in range(policy.runnable[kind, session] - 1, policy.chosen[kind, session], -1):
        expire(policy, accelerator, session, index, now)
        held = policy.cluster.queues[session].tail - policy.heads[kind, session, index]
        if held >= policy.sizes[index]:
            return int(index)
    return int(policy.chosen[kind, session])


@njit_flat
def drop_lost(policy: Clockwork, session: int) -> None:
    """Drop the requests that have left all queues."""
    head = policy.cluster.queues[session].tail
    for kind in range(policy.kinds.size):
        head = min(head, policy.heads[policy.kinds[kind], session, 0])
    lost = head - policy.cluster.queues[session].head
    if lost > 0:
        drop(policy.cluster, session, lost)


@njit_flat
def bring_forward(policy: Clockwork, session: int, first: int, size: int) -> None:
    """Let a batch change places with what stands before it, and move the heads of all queues along."""
    cluster, head = policy.cluster, policy.cluster.queues[session].head
    if first > head:  # three reversals swap two neighbouring stretches in place
        _reverse(cluster, session, head, first)
        _reverse(cluster, session, first, first + size)
        _reverse(cluster, session, head, first + size)
    for kind in range(policy.heads.shape[0]):
        for index in range(policy.usable[session]):
            position = policy.heads[kind, session, index]
            moved = position + size if position < first else max(position, first + size)
            policy.heads[kind, session, index] = moved


@njit_flat
def _reverse(cluster: Cluster, queue: int, first: int, end: int) -> None:
    """Reverse the requests from ``first`` to before ``end``."""
    mask, ring = cluster.waiting.shape[1] - 1, cluster.waiting
    last = end - 1
    while first < last:
        one, other = first & mask, last & mask
        arrival, number = ring[queue, one].arrival, ring[queue, one].number
        ring[queue, one].arrival = ring[queue, other].arrival
        ring[queue, one].number = ring[queue, other].number
        ring[queue, other].arrival = arrival
        ring[queue, other].number = number
        first += 1
        last -= 1
