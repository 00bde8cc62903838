"""Eager: an accelerator takes at once the largest batch of the session with the earliest deadline.

The work-conserving rival of deferred batching (Symphony, section 4.3, first option). Batches are sent ahead,
so that they arrive when the accelerator gets free, as those of the deferred scheduler. Requests that cannot
end in time even alone are dropped from the head when an accelerator is there for them, at the latest at their
deadline.

Unlike accelerators take only from sessions whose oldest request would end in time alone on one of their kind;
if it would on none, the fastest kind takes it. A request is dropped if none of them, each when it is free,
could end it in time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat, njit_inline
from tuner.scheduling.cluster import ClusterSpec, NoOptions, build_cluster
from tuner.scheduling.fleet import (
    Fleet,
    delay,
    earliest,
    earliest_of,
    ended,
    first_to_end,
    free_at,
    in_time,
    largest_in_time,
    make_fleet,
    next_kind,
    send,
)
from tuner.scheduling.policy import Functions, register
from tuner.scheduling.requests import begin, deadline, drop, has_room, push, waiting
from tuner.scheduling.tournament import least_index, least_key, make_tree, set_key
from tuner.scheduling.vocabulary import OK, Cluster

__all__ = ["Eager", "build", "derive"]


class Eager(NamedTuple):
    """The state; all arrays are modified in place."""

    cluster: Cluster
    fleet: Fleet
    oldest: np.ndarray  # tree over sessions: deadline of the oldest waiting request, s
    of_kind: np.ndarray  # (K, 2 P) the same of the sessions that a kind takes from; no rows if there is one


def build(spec: ClusterSpec, options: NoOptions | None = None) -> Eager:  # noqa: ARG001 - as the others
    """Return the state at time 0."""
    cluster = build_cluster(spec)
    fleet, oldest = make_fleet(cluster), make_tree(len(spec.sessions))
    return Eager(cluster, fleet, oldest, np.full((len(fleet.of_kind), oldest.size), np.inf))


def derive(policy: Eager, options: NoOptions | None = None) -> None:  # noqa: ARG001 - as the others
    """Find again when what waits is due, and which kinds take from which sessions.

    The profiles or delays have changed.

    Args:
        policy: Modified in place.
        options: It has none.
    """
    # Only what waits: before `arrive` has compiled it, `_requeue` would be compiled to slower code here.
    queues, board = policy.cluster.queues, policy.cluster.board[0]
    for session in np.flatnonzero(queues["tail"] > queues["head"]).tolist():
        _requeue(policy, session)
    board.wake_at = min(board.wake_at, policy.oldest.min())


@njit_inline
def arrive(policy: Eager, session: int, source: int, number: int, now: float) -> int:  # noqa: ARG001
    """See :func:`tuner.scheduling.policy.arrive`."""
    cluster = policy.cluster
    begin(cluster, now)
    status = push(cluster, session, number, now)
    if status != OK:
        return status
    if waiting(cluster, session) == 1 or cluster.board[0].early > 0:  # it may have become the oldest
        _requeue(policy, session)
    _assign(policy)
    return OK


@njit_flat
def finish(policy: Eager, accelerator: int, now: float) -> int:
    """See :func:`tuner.scheduling.policy.finish`."""
    begin(policy.cluster, now)
    ended(policy.cluster, policy.fleet, accelerator)
    _assign(policy)
    return OK


@njit_flat
def wake(policy: Eager, now: float) -> int:
    """See :func:`tuner.scheduling.policy.wake`: a deadline, the time to send ahead, or room was lacking."""
    cluster = policy.cluster
    begin(cluster, now)
    while least_key(policy.oldest) <= now and has_room(cluster):
        session = least_index(policy.oldest)
        if deadline(cluster, session, cluster.queues[session].head) <= now:  # the budget may have grown
            drop(cluster, session, 1)
        _requeue(policy, session)
    _assign(policy)
    return OK


@njit_inline
def _assign(policy: Eager) -> None:
    """Send batches if it may be time to; say when to go on."""
    board = policy.cluster.board
    send_at = np.inf
    if least_key(policy.oldest) < np.inf:
        if policy.fleet.kinds.size > 1:
            send_at = _serve_unlike(policy)
        else:
            send_at = _send_at(policy, least_key(policy.fleet.free))
            if send_at <= board[0].now:
                send_at = _serve(policy)
    board[0].wake_at = max(min(least_key(policy.oldest), send_at), board[0].now)


@njit_inline
def _send_at(policy: Eager, free: float) -> float:
    """Return when the next session's largest batch must be sent to start at ``free``, s."""
    cluster = policy.cluster
    return float(free - delay(cluster, _largest(cluster, least_index(policy.oldest))))


@njit_flat
def _serve(policy: Eager) -> float:
    """Give batches to like accelerators while there are both; return when the next one can be sent, s."""
    cluster, fleet = policy.cluster, policy.fleet
    now = cluster.board[0].now
    while least_key(policy.oldest) < np.inf:
        accelerator = earliest(cluster, fleet)
        if accelerator < 0:
            break
        free = free_at(fleet, accelerator)
        send_at = _send_at(policy, free)
        if send_at > now:  # only when the largest could go is it worth finding out how large it can be
            return send_at
        if not has_room(cluster):
            return float(now)
        session = least_index(policy.oldest)
        count = _batch(policy, session, accelerator)
        if free - delay(cluster, count) > now:
            return float(free - delay(cluster, count))
        if count:
            send(cluster, fleet, session, count, accelerator)
        else:
            drop(cluster, session, _lost(policy, session, accelerator))
        _requeue(policy, session)
    return np.inf


@njit_flat
def _serve_unlike(policy: Eager) -> float:
    """Give batches to unlike accelerators while there are both; return when the next one can be sent, s."""
    cluster = policy.cluster
    now = cluster.board[0].now
    accelerator, session, count, send_at = _next_batch(policy)
    while send_at <= now:
        if not has_room(cluster):
            return float(now)
        if count:
            send(cluster, policy.fleet, session, count, accelerator)
            _requeue(policy, session)
        else:
            _give_up(policy, session, accelerator)
        accelerator, session, count, send_at = _next_batch(policy)
    return float(send_at)


@njit_flat
def _next_batch(policy: Eager) -> tuple[int, int, int, float]:
    """Return an accelerator, session and size of its next batch, and when that can be sent, s; never without.

    Of several kinds it is the accelerator that can be sent one first; of those that can be now, the one that
    is free first.
    """
    cluster, fleet, now = policy.cluster, policy.fleet, policy.cluster.board[0].now
    best, session, count = (np.inf, np.inf, -1), -1, 0
    for index in range(fleet.kinds.size):
        kind = fleet.kinds[index]
        if least_key(policy.of_kind[kind]) < np.inf:
            accelerator = earliest_of(cluster, fleet, kind)
            if accelerator >= 0:
                free, first = free_at(fleet, accelerator), least_index(policy.of_kind[kind])
                size = _largest(cluster, first)
                if free - delay(cluster, size) <= now:  # only then it is worth finding out how large it is
                    size = _batch(policy, first, accelerator)
                offer = (max(free - delay(cluster, size), now), free, accelerator)
                if offer < best:
                    best, session, count = offer, first, size
    return best[2], session, count, best[0]


@njit_flat
def _largest(cluster: Cluster, session: int) -> int:
    """Return how large a batch the waiting requests make."""
    return min(waiting(cluster, session), int(cluster.sessions[session].largest))


@njit_flat
def _batch(policy: Eager, session: int, accelerator: int) -> int:
    """Return the largest batch that ends by the deadline of its oldest request, 0 if none does."""
    cluster = policy.cluster
    kind, free = cluster.accelerators[accelerator].kind, free_at(policy.fleet, accelerator)
    latest = deadline(cluster, session, cluster.queues[session].head)
    return int(largest_in_time(cluster, session, kind, 0, _largest(cluster, session), free, latest))


@njit_flat
def _give_up(policy: Eager, session: int, accelerator: int) -> None:
    """Drop the oldest requests if no accelerator ends them in time; otherwise leave them to another kind."""
    cluster, fleet = policy.cluster, policy.fleet
    lost = _lost(policy, session, first_to_end(cluster, fleet, session, 1))
    if lost:
        drop(cluster, session, lost)
        _requeue(policy, session)
    else:
        set_key(policy.of_kind[cluster.accelerators[accelerator].kind], session, np.inf)


@njit_flat
def _lost(policy: Eager, session: int, accelerator: int) -> int:
    """Return how many requests at the head cannot end in time even alone."""
    cluster = policy.cluster
    kind, free = cluster.accelerators[accelerator].kind, free_at(policy.fleet, accelerator)
    head = cluster.queues[session].head
    count = 0
    while count < waiting(cluster, session):
        if in_time(cluster, session, kind, 1, free, deadline(cluster, session, head + count)):
            break
        count += 1
    return count


@njit_flat
def _requeue(policy: Eager, session: int) -> None:
    """Note the deadline of the session's oldest request."""
    cluster = policy.cluster
    key = np.inf
    if waiting(cluster, session):
        key = deadline(cluster, session, cluster.queues[session].head)
    set_key(policy.oldest, session, key)
    if policy.fleet.kinds.size > 1:
        _offer_each(policy, session, key)


@njit_flat
def _offer_each(policy: Eager, session: int, key: float) -> None:
    """Note the deadline for the kinds of accelerators that take from the session."""
    cluster, kinds = policy.cluster, policy.fleet.kinds
    own = next_kind(cluster, policy.fleet, session, 1, key)
    for index in range(kinds.size):
        kind = kinds[index]
        taken = kind == own or in_time(cluster, session, kind, 1, -np.inf, key)
        set_key(policy.of_kind[kind], session, key if taken else np.inf)


register(Eager, Functions(arrive, finish, wake))
