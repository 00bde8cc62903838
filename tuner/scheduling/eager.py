"""Eager: an accelerator takes at once the largest batch of the session with the earliest deadline.

The work-conserving rival of deferred batching (Symphony, section 4.3, first option). Batches are sent ahead,
so that they arrive when the accelerator gets free, as those of the deferred scheduler. Requests that cannot
end in time even alone are dropped from the head when an accelerator is there for them, at the latest at their
deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat, njit_inline
from tuner.scheduling.cluster import ClusterSpec, build_cluster
from tuner.scheduling.fleet import Fleet, delay, earliest, ended, free_at, make_fleet, send
from tuner.scheduling.policy import Functions, register
from tuner.scheduling.requests import begin, deadline, drop, has_room, push, waiting
from tuner.scheduling.tournament import least_index, least_key, make_tree, set_key
from tuner.scheduling.vocabulary import OK, Cluster

__all__ = ["Eager", "Options", "build"]

TOLERANCE = 5e-10
"""s by which rounding may let a batch end after a deadline; half of what drivers forgive."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Nothing can be chosen."""


class Eager(NamedTuple):
    """The state; all arrays are modified in place."""

    cluster: Cluster
    fleet: Fleet
    oldest: np.ndarray  # tree over sessions: deadline of the oldest waiting request, s


def build(spec: ClusterSpec, options: Options | None = None) -> Eager:  # noqa: ARG001 - as the others
    """Return the state at time 0."""
    return Eager(build_cluster(spec), make_fleet(len(spec.kinds)), make_tree(len(spec.sessions)))


@njit_inline
def arrive(policy: Eager, session: int, source: int, number: int, now: float) -> int:  # noqa: ARG001
    """See :func:`tuner.scheduling.policy.arrive`."""
    cluster = policy.cluster
    begin(cluster, now)
    status = push(cluster, session, number, now)
    if status != OK:
        return status
    if waiting(cluster, session) == 1:
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


@njit_flat
def _assign(policy: Eager) -> None:
    """Give batches to accelerators while there are both."""
    cluster, fleet = policy.cluster, policy.fleet
    now = cluster.board[0].now
    send_at = np.inf
    while least_key(policy.oldest) < np.inf:
        accelerator = earliest(cluster, fleet)
        if accelerator < 0:
            break
        session = least_index(policy.oldest)
        # No batch must be sent before the largest; only then is it worth finding out how large it is.
        send_at = free_at(fleet, accelerator) - delay(cluster, _largest(cluster, session))
        if send_at > now or not has_room(cluster):
            send_at = max(send_at, now)
            break
        count = _batch(policy, session, accelerator)
        send_at = free_at(fleet, accelerator) - delay(cluster, count)
        if send_at > now:
            break
        send_at = np.inf
        if count:
            send(cluster, fleet, session, count, accelerator)
        else:
            drop(cluster, session, _hopeless(policy, session, accelerator))
        _requeue(policy, session)
    cluster.board[0].wake_at = max(min(least_key(policy.oldest), send_at), now)


@njit_flat
def _largest(cluster: Cluster, session: int) -> int:
    """The largest batch that there are requests for."""
    return min(waiting(cluster, session), int(cluster.sessions[session].largest))


@njit_flat
def _batch(policy: Eager, session: int, accelerator: int) -> int:
    """The largest batch that ends by the deadline of its oldest request; 0 if not even that one can."""
    latest = deadline(policy.cluster, session, policy.cluster.queues[session].head)
    low = 0
    high = _largest(policy.cluster, session)
    while low < high:
        middle = (low + high + 1) // 2
        if _fits(policy, session, accelerator, middle, latest):
            low = middle
        else:
            high = middle - 1
    return low


@njit_flat
def _hopeless(policy: Eager, session: int, accelerator: int) -> int:
    """How many requests from the head on cannot end in time even alone."""
    cluster = policy.cluster
    head = cluster.queues[session].head
    count = 0
    while count < waiting(cluster, session):
        if _fits(policy, session, accelerator, 1, deadline(cluster, session, head + count)):
            break
        count += 1
    return count


@njit_flat
def _fits(policy: Eager, session: int, accelerator: int, count: int, latest: float) -> bool:
    """Whether a batch of ``count`` requests decided now ends by ``latest``, s."""
    cluster = policy.cluster
    kind = cluster.accelerators[accelerator].kind
    start = max(cluster.board[0].now + delay(cluster, count), free_at(policy.fleet, accelerator))
    return bool(start + cluster.latency[kind, session, count] <= latest + TOLERANCE)


@njit_flat
def _requeue(policy: Eager, session: int) -> None:
    """Note the deadline of the session's oldest request."""
    cluster = policy.cluster
    key = np.inf
    if waiting(cluster, session):
        key = deadline(cluster, session, cluster.queues[session].head)
    set_key(policy.oldest, session, key)


register(Eager, Functions(arrive, finish, wake))
