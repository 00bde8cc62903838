"""Eager: an accelerator takes at once the largest batch of the session with the earliest deadline.

The work-conserving rival of deferred batching (Symphony, section 4.3, first option). Batches are sent ahead,
so that they arrive when the accelerator gets free, as those of the deferred scheduler. Requests that cannot
end in time even alone are dropped from the head when an accelerator is there for them, at the latest at their
deadline.
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
    ended,
    free_at,
    in_time,
    largest_in_time,
    make_fleet,
    send,
)
from tuner.scheduling.policy import Functions, register
from tuner.scheduling.requests import begin, deadline, drop, has_room, push, waiting
from tuner.scheduling.tournament import least_index, least_key, make_tree, set_key
from tuner.scheduling.vocabulary import OK, Cluster

__all__ = ["Eager", "build"]


class Eager(NamedTuple):
    """The state; all arrays are modified in place."""

    cluster: Cluster
    fleet: Fleet
    oldest: np.ndarray  # tree over sessions: deadline of the oldest waiting request, s


def build(spec: ClusterSpec, options: NoOptions | None = None) -> Eager:  # noqa: ARG001 - as the others
    """Return the state at time 0."""
    cluster = build_cluster(spec)
    return Eager(cluster, make_fleet(cluster), make_tree(len(spec.sessions)))


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
    """Give batches to accelerators while there are both; return when the next one can be sent, s."""
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


register(Eager, Functions(arrive, finish, wake))
