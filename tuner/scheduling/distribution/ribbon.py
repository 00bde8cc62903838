"""Ribbon's distribution: first come, first served, to the fastest idle instance (Kairos, section 7).

It prefers base types when several instances are idle. It ignores the sizes of requests, so that large ones
go to instances that cannot meet the SLO.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat, njit_inline
from tuner.scheduling.cluster import ClusterSpec, build_cluster
from tuner.scheduling.distribution.pool import (
    Pool,
    ended,
    make_pool,
    oldest,
    send_oldest,
    speed_order,
    take_in,
)
from tuner.scheduling.policy import Functions, register
from tuner.scheduling.requests import begin, push
from tuner.scheduling.vocabulary import NEVER, OK, Cluster

__all__ = ["Ribbon", "RibbonOptions", "build"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RibbonOptions:
    """Nothing can be chosen."""


class Ribbon(NamedTuple):
    """The state; all arrays are modified in place, ``order`` excepted."""

    cluster: Cluster
    pool: Pool
    order: np.ndarray  # (N,) accelerators, the fastest first


def build(spec: ClusterSpec, options: RibbonOptions | None = None) -> Ribbon:  # noqa: ARG001 - as the others
    """Return the state at time 0."""
    cluster = build_cluster(spec)
    return Ribbon(cluster, make_pool(cluster), speed_order(cluster))


@njit_inline
def arrive(policy: Ribbon, session: int, source: int, number: int, now: float) -> int:  # noqa: ARG001
    """See :func:`tuner.scheduling.policy.arrive`."""
    cluster = policy.cluster
    begin(cluster, now)
    status = push(cluster, session, number, now)
    if status == OK and take_in(policy.pool):
        cluster.board[0].wake_at = now
    return status


@njit_flat
def finish(policy: Ribbon, accelerator: int, now: float) -> int:
    """See :func:`tuner.scheduling.policy.finish`."""
    cluster = policy.cluster
    begin(cluster, now)
    ended(cluster, policy.pool, accelerator)
    cluster.board[0].wake_at = now if policy.pool.state[0].waiting else NEVER
    return OK


@njit_flat
def wake(policy: Ribbon, now: float) -> int:
    """See :func:`tuner.scheduling.policy.wake`: something arrived or ended just now."""
    cluster = policy.cluster
    begin(cluster, now)
    cluster.board[0].wake_at = NEVER
    for index in range(policy.order.size):
        if policy.pool.state[0].waiting == 0:
            break
        accelerator = policy.order[index]
        if cluster.accelerators[accelerator].outstanding == 0:
            send_oldest(cluster, policy.pool, oldest(cluster, 0, cluster.queues.size), accelerator)
    return OK


register(Ribbon, Functions(arrive, finish, wake))
