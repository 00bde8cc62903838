"""Eager: an idle accelerator takes at once the largest batch of the session with the earliest deadline.

The work-conserving rival of deferred batching (Symphony, section 4.3, first option). Requests whose
deadline cannot be met any more are dropped from the head when an accelerator is there for them, at the
latest at their deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat
from tuner.scheduling.cluster import ClusterSpec, build_cluster
from tuner.scheduling.policy import Functions, register
from tuner.scheduling.requests import begin, deadline, dispatch, drop, has_room, push, waiting
from tuner.scheduling.tournament import least_index, least_key, make_tree, set_key
from tuner.scheduling.vocabulary import OK, Cluster

__all__ = ["Eager", "Options", "build"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Nothing can be chosen."""


class Eager(NamedTuple):
    """The state; all arrays are modified in place."""

    cluster: Cluster
    oldest: np.ndarray  # tree over sessions: deadline of the oldest waiting request, s
    idle: np.ndarray  # tree over accelerators: its number if idle


def build(spec: ClusterSpec, options: Options | None = None) -> Eager:  # noqa: ARG001 - as the others
    """Return the state at time 0."""
    idle = make_tree(len(spec.kinds))
    for accelerator in range(len(spec.kinds)):
        set_key(idle, accelerator, float(accelerator))
    return Eager(build_cluster(spec), make_tree(len(spec.sessions)), idle)


@njit_flat
def arrive(policy: Eager, session: int, source: int, number: int, now: float) -> int:  # noqa: ARG001
    """See :func:`tuner.scheduling.policy.arrive`."""
    cluster = policy.cluster
    begin(cluster, now)
    status = push(cluster, session, number, now)
    if status != OK:
        return status
    if waiting(cluster, session) == 1:
        _requeue(policy, session)
    _assign(policy, now)
    return OK


@njit_flat
def finish(policy: Eager, accelerator: int, now: float) -> int:
    """See :func:`tuner.scheduling.policy.finish`."""
    begin(policy.cluster, now)
    policy.cluster.accelerators[accelerator].outstanding -= 1
    set_key(policy.idle, accelerator, float(accelerator))
    _assign(policy, now)
    return OK


@njit_flat
def wake(policy: Eager, now: float) -> int:
    """See :func:`tuner.scheduling.policy.wake`: the deadline of a request has come, or room was lacking."""
    cluster = policy.cluster
    begin(cluster, now)
    while least_key(policy.oldest) <= now and has_room(cluster):
        session = least_index(policy.oldest)
        drop(cluster, session, 1)
        _requeue(policy, session)
    _assign(policy, now)
    return OK


@njit_flat
def _assign(policy: Eager, now: float) -> None:
    """Give batches to idle accelerators while there are both."""
    cluster = policy.cluster
    while least_key(policy.idle) < np.inf and least_key(policy.oldest) < np.inf and has_room(cluster):
        accelerator = least_index(policy.idle)
        session = least_index(policy.oldest)
        size = _batch(cluster, session, accelerator, now)
        if size:
            start = now + cluster.board[0].d_control + cluster.board[0].d_data * size
            dispatch(cluster, session, size, accelerator, start)
            set_key(policy.idle, accelerator, np.inf)
        else:
            drop(cluster, session, 1)
        _requeue(policy, session)
    cluster.board[0].wake_at = now if not has_room(cluster) else least_key(policy.oldest)


@njit_flat
def _batch(cluster: Cluster, session: int, accelerator: int, now: float) -> int:
    """The largest batch that ends by the deadline of its oldest request; 0 if not even that one can."""
    kind = cluster.accelerators[accelerator].kind
    latest = deadline(cluster, session, cluster.queues[session].head)
    size = min(waiting(cluster, session), cluster.sessions[session].largest)
    room = latest - now - cluster.board[0].d_control
    while size and cluster.board[0].d_data * size + cluster.latency[kind, session, size] > room:
        size -= 1
    return int(size)


@njit_flat
def _requeue(policy: Eager, session: int) -> None:
    """Note the deadline of the session's oldest request."""
    cluster = policy.cluster
    key = np.inf
    if waiting(cluster, session):
        key = deadline(cluster, session, cluster.queues[session].head)
    set_key(policy.oldest, session, key)


register(Eager, Functions(arrive, finish, wake))
