"""The oracle: it knows all requests and lets each come when an instance is free for it (Kairos, section 7).

It is a limit for comparison, not a policy to deploy. A base instance takes the largest request, an auxiliary
one the smallest if it meets the SLO there. No request waits: its arrival is the time when it is sent. All
requests must arrive at one instant (:class:`tuner.cluster.requests.AtOnce`); the throughput is their number
over the time that they take.

It believes the profile. Of several sessions, a base instance takes the request that takes it longest, an
auxiliary one the request that takes it shortest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat, njit_inline
from tuner.scheduling.cluster import ClusterSpec, NoOptions, build_cluster
from tuner.scheduling.distribution.pool import (
    Pool,
    base_instances,
    enqueue,
    finish,
    make_pool,
    send_oldest,
    speed_order,
    travel,
)
from tuner.scheduling.policy import Functions, register
from tuner.scheduling.requests import begin, items_of, move_forward
from tuner.scheduling.vocabulary import NEVER, OK, TOLERANCE, Cluster

__all__ = ["Oracle", "build"]


class Oracle(NamedTuple):
    """The state; all arrays are modified in place, ``order`` and ``base`` excepted.

    The requests of a queue lie in order of their size, the smallest at its head.
    """

    cluster: Cluster
    pool: Pool
    order: np.ndarray  # (N,) accelerators, the fastest first
    base: np.ndarray  # (N, M) whether it is a base instance


def build(spec: ClusterSpec, options: NoOptions | None = None) -> Oracle:  # noqa: ARG001 - as the others
    """Return the state at time 0."""
    cluster = build_cluster(spec)
    return Oracle(cluster, make_pool(cluster), speed_order(cluster), base_instances(cluster))


@njit_inline
def arrive(policy: Oracle, session: int, source: int, number: int, now: float) -> int:  # noqa: ARG001
    """See :func:`tuner.scheduling.policy.arrive`."""
    begin(policy.cluster, now)
    status = enqueue(policy, session, number, now)
    if status == OK:
        _sort_in(policy.cluster, session)
    return status


@njit_flat
def wake(policy: Oracle, now: float) -> int:
    """See :func:`tuner.scheduling.policy.wake`: something arrived or ended just now."""
    cluster = policy.cluster
    begin(cluster, now)
    cluster.board[0].wake_at = NEVER
    for index in range(policy.order.size):
        accelerator = policy.order[index]
        if cluster.accelerators[accelerator].outstanding == 0:
            _serve(policy, accelerator)
    return OK


@njit_flat
def _serve(policy: Oracle, accelerator: int) -> None:
    """Give an idle instance a request, if there is one for it."""
    cluster = policy.cluster
    kind = cluster.accelerators[accelerator].kind
    largest, longest, smallest, shortest = -1, 0.0, -1, np.inf
    for queue in range(cluster.queues.size):
        head, last = cluster.queues[queue].head, cluster.queues[queue].tail - 1
        if last < head:
            continue
        if policy.base[accelerator, queue]:
            time = cluster.latency[kind, queue, items_of(cluster, queue, last)]
            if time > longest:
                largest, longest = queue, time
        else:
            time = cluster.latency[kind, queue, items_of(cluster, queue, head)]
            latest = cluster.sessions[queue].budget + TOLERANCE
            if travel(cluster) + time <= latest and time < shortest:
                smallest, shortest = queue, time
    if largest >= 0:
        _send(policy, largest, accelerator, True)
    elif smallest >= 0:
        _send(policy, smallest, accelerator, False)


@njit_flat
def _send(policy: Oracle, queue: int, accelerator: int, last: bool) -> None:
    """Send the smallest or the last, which is the largest, request of a queue; it arrives only now."""
    cluster, mask = policy.cluster, policy.cluster.waiting.shape[1] - 1
    head, tail = cluster.queues[queue].head, cluster.queues[queue].tail
    if last:
        cluster.queues[queue].head = tail - 1
    cluster.waiting[queue, cluster.queues[queue].head & mask].arrival = cluster.board[0].now
    send_oldest(cluster, policy.pool, queue, accelerator)
    if last:
        cluster.queues[queue].head = head
        cluster.queues[queue].tail = tail - 1


@njit_flat
def _sort_in(cluster: Cluster, queue: int) -> None:
    """Bring the request that came last to its place in the order of size; of equal ones behind the others."""
    last = cluster.queues[queue].tail - 1
    place, items = last, items_of(cluster, queue, last)
    while place > cluster.queues[queue].head and items_of(cluster, queue, place - 1) > items:
        place -= 1
    move_forward(cluster, queue, last, place)


register(Oracle, Functions(arrive, finish, wake))
