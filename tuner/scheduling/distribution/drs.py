"""DeepRecSys's distribution: requests above a threshold go to base instances, the others never do.

As in the Kairos paper (section 7): requests larger than the threshold wait for a base instance, the others
for an auxiliary one, each first come, first served, to the fastest idle one. Hill climbing on the goodput
finds the threshold for each pool (:mod:`tuner.cluster.threshold`).

Base instances meet the SLO at the largest size; if none does, the fastest count as such. In a pool without
auxiliary instances all requests go to the base.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat, njit_inline
from tuner.errors import InvalidInput
from tuner.scheduling.cluster import ClusterSpec, build_cluster
from tuner.scheduling.distribution.pool import (
    Pool,
    base_instances,
    enqueue,
    finish,
    make_pool,
    send_oldest,
    speed_order,
)
from tuner.scheduling.policy import Functions, register
from tuner.scheduling.requests import arrival_of, begin
from tuner.scheduling.vocabulary import NEVER, OK, Cluster

__all__ = ["Drs", "DrsOptions", "build", "derive"]

LARGEST = 1_000_000
"""Items; no request has more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrsOptions:
    """One threshold for all sessions, or a tuple with one per session."""

    threshold: int | tuple[int, ...] = 0
    """Requests of more items go to base instances."""

    def __post_init__(self) -> None:
        values = self.threshold if isinstance(self.threshold, tuple) else (self.threshold,)
        for value in values:
            if not isinstance(value, Integral) or not 0 <= value <= LARGEST:
                raise InvalidInput("threshold", f"{value} is no number of items", f"use 0 to {LARGEST:,}")


class Drs(NamedTuple):
    """The state; all arrays are modified in place: ``order``, ``base`` and ``threshold`` by :func:`derive`.

    Queue s holds the small requests of session s, queue M + s its large ones.
    """

    cluster: Cluster
    pool: Pool
    order: np.ndarray  # (N,) accelerators, the fastest first
    base: np.ndarray  # (N, M) whether it is a base instance
    threshold: np.ndarray  # (M,) items


def build(spec: ClusterSpec, options: DrsOptions | None = None) -> Drs:
    """Return the state at time 0.

    Raises:
        InvalidInput: There are not as many thresholds as sessions.
    """
    threshold = (options or DrsOptions()).threshold
    count = len(spec.sessions)
    if isinstance(threshold, tuple) and len(threshold) != count:
        raise InvalidInput("threshold", f"there are {len(threshold)} for {count} sessions", "give one each")
    cluster = build_cluster(spec, queues=[(session % count, -1) for session in range(2 * count)])
    base = np.zeros((len(spec.kinds), count), np.bool_)
    policy = Drs(cluster, make_pool(cluster), speed_order(cluster), base, np.zeros(count, np.int64))
    derive(policy, options)
    return policy


def derive(policy: Drs, options: DrsOptions | None = None) -> None:
    """Find out which instances are base instances, and which are fast, by what the cluster assumes.

    Args:
        policy: Modified in place.
        options: Those that it was built with.
    """
    policy.order[:] = speed_order(policy.cluster)
    policy.base[:] = base_instances(policy.cluster)
    policy.threshold[:] = (options or DrsOptions()).threshold
    policy.threshold[policy.base.all(axis=0)] = 0


@njit_inline
def arrive(policy: Drs, session: int, source: int, number: int, now: float) -> int:  # noqa: ARG001
    """See :func:`tuner.scheduling.policy.arrive`."""
    begin(policy.cluster, now)
    large = policy.cluster.board[0].items > policy.threshold[session]
    return enqueue(policy, session + policy.threshold.size if large else session, number, now)


@njit_flat
def wake(policy: Drs, now: float) -> int:
    """See :func:`tuner.scheduling.policy.wake`: something arrived or ended just now."""
    cluster = policy.cluster
    begin(cluster, now)
    cluster.board[0].wake_at = NEVER
    for index in range(policy.order.size):
        if policy.pool.state[0].waiting == 0:
            break
        accelerator = policy.order[index]
        if cluster.accelerators[accelerator].outstanding == 0:
            queue = _next(policy, accelerator)
            if queue >= 0:
                send_oldest(cluster, policy.pool, queue, accelerator)
    return OK


@njit_flat
def _next(policy: Drs, accelerator: int) -> int:
    """Return the queue whose head is the oldest request for an instance; -1 if there is none.

    A base instance takes small requests, too, where the threshold is 0: of those that arrived before all
    instances became base instances.
    """
    cluster, sessions = policy.cluster, policy.threshold.size
    found, earliest = -1, np.inf
    for session in range(sessions):
        base = policy.base[accelerator, session]
        first = session if not base or policy.threshold[session] == 0 else session + sessions
        last = session + sessions if base else session
        for queue in range(first, last + 1, sessions):
            head = cluster.queues[queue].head
            if head < cluster.queues[queue].tail and arrival_of(cluster, queue, head) < earliest:
                found, earliest = queue, arrival_of(cluster, queue, head)
    return found


register(Drs, Functions(arrive, finish, wake))
