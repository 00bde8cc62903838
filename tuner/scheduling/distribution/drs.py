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

__all__ = ["Drs", "DrsOptions", "build"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DrsOptions:
    """One threshold for all sessions, or a tuple with one per session."""

    threshold: int | tuple[int, ...] = 0
    """Requests of more items go to base instances."""

    def __post_init__(self) -> None:
        values = self.threshold if isinstance(self.threshold, tuple) else (self.threshold,)
        for value in values:
            if not isinstance(value, Integral) or value < 0:
                raise InvalidInput("threshold", f"{value} is no number of items", "use 0 or more")


class Drs(NamedTuple):
    """The state; all arrays are modified in place, ``order``, ``base`` and ``threshold`` excepted.

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
    base = base_instances(cluster)
    limits = np.broadcast_to(np.array(threshold, np.int64), (count,)).copy()
    limits[base.all(axis=0)] = 0
    return Drs(cluster, make_pool(cluster), speed_order(cluster), base, limits)


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
    """Return the queue whose head is the oldest request for an instance; -1 if there is none."""
    cluster, sessions = policy.cluster, policy.threshold.size
    found, earliest = -1, np.inf
    for session in range(sessions):
        queue = session + sessions if policy.base[accelerator, session] else session
        head = cluster.queues[queue].head
        if head < cluster.queues[queue].tail and arrival_of(cluster, queue, head) < earliest:
            found, earliest = queue, arrival_of(cluster, queue, head)
    return found


register(Drs, Functions(arrive, finish, wake))
