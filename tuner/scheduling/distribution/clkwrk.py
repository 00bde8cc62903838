"""Clockwork's distribution: a queue per instance; a request joins the one where it ends first.

As in the Kairos paper (section 7): the controller knows when every instance will have emptied its queue, and
predicts execution times. Each arriving request goes to the instance where it ends earliest, of those where it
meets its deadline. Queues are first come, first served, and a request never changes its queue. What waits
takes what is believed now, not when it came, and each of it the way to the instance, as it is sent alone.

The paper does not say what happens to a request that meets it nowhere. Here it goes to where it ends
earliest; with ``refuse`` it is refused at once, as in Clockwork itself (Gujarati et al., OSDI 2020), and so
is at its turn what will be late after all, because those before it took longer or more is known.

The policy knows the profile, as the paper credits it with accurate predictions; with ``learn`` it learns like
Kairos. A queue is then counted again with what was learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat
from tuner.scheduling.cluster import ClusterSpec, build_cluster
from tuner.scheduling.distribution.pool import Pool, ended, make_pool, oldest, send_request, travel
from tuner.scheduling.distribution.predictor import Predictor, believed, learn_last, make_predictor
from tuner.scheduling.policy import Functions, register
from tuner.scheduling.requests import begin, deadline, drop, items_of, push, waiting
from tuner.scheduling.vocabulary import OK, TOLERANCE, Cluster, records

__all__ = ["Clkwrk", "ClkwrkOptions", "build", "derive"]

SHORT = 100
"""Requests of a queue that is counted again whenever something was learned; one n times as long is counted
after every n-th time. So the work per request is bounded however long queues are, but grows with the
instances of a kind, whose queues are all counted."""

RULE = np.dtype(
    [
        ("learns", "i8"),  # 1: execution times are learned; 0: the table is believed
        ("refuses", "i8"),  # 1: what cannot be in time is refused
    ],
    align=True,
)
LOAD = np.dtype(
    [
        ("queued", "f8"),  # s that the requests in its queue execute, as believed
        ("waiting", "i8"),  # requests in its queue
        ("learned", "i8"),  # requests learned from since the queue was counted
    ],
    align=True,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClkwrkOptions:
    """What is believed, and what becomes of requests that are lost."""

    learn: bool = False
    """Whether execution times are learned; if not, the profile is believed."""
    refuse: bool = False
    """Whether a request that no instance can serve in time is refused, when it comes or at its turn."""


class Clkwrk(NamedTuple):
    """The state; all arrays are modified in place.

    Queue j M + s holds the requests of session s that wait for accelerator j, queue N M + s those refused.
    """

    cluster: Cluster
    pool: Pool
    predictor: Predictor
    rule: np.ndarray  # (1,) RULE
    loads: np.ndarray  # (N,) LOAD


def build(spec: ClusterSpec, options: ClkwrkOptions | None = None) -> Clkwrk:
    """Return the state at time 0."""
    options = options or ClkwrkOptions()
    count, instances = len(spec.sessions), len(spec.kinds)
    queues = [(session, -1) for _ in range(instances + 1) for session in range(count)]
    cluster = build_cluster(spec, queues=queues)
    rule = records(1, RULE)
    rule[0] = (int(options.learn), int(options.refuse))
    kinds, _, size = cluster.latency.shape
    return Clkwrk(
        cluster, make_pool(cluster), make_predictor(kinds, count, size - 1), rule, records(instances, LOAD)
    )


def derive(policy: Clkwrk, options: ClkwrkOptions | None = None) -> None:  # noqa: ARG001 - as the others
    """Find again how long what waits takes, for the profiles have changed.

    Args:
        policy: Modified in place.
        options: Those that it was built with.
    """
    # Only what waits: before `finish` is compiled, `_count` would be compiled to slower code here.
    for accelerator in np.flatnonzero(policy.loads["waiting"]).tolist():
        _count(policy, accelerator)


@njit_flat
def arrive(policy: Clkwrk, session: int, source: int, number: int, now: float) -> int:  # noqa: ARG001
    """See :func:`tuner.scheduling.policy.arrive`."""
    cluster = policy.cluster
    begin(cluster, now)
    sessions = cluster.sessions.size
    accelerator, keeps = _best(policy, session)
    if policy.rule[0].refuses and not keeps:
        queue = cluster.accelerators.size * sessions + session
        status = push(cluster, queue, number, now)
        if status == OK:
            drop(cluster, queue, 1)
        return status
    status = push(cluster, accelerator * sessions + session, number, now)
    if status != OK:
        return status
    policy.pool.state[0].waiting += 1
    kind = cluster.accelerators[accelerator].kind
    policy.loads[accelerator].queued += believed(policy, kind, session, cluster.board[0].items)
    policy.loads[accelerator].waiting += 1
    if cluster.accelerators[accelerator].outstanding == 0:
        _send(policy, accelerator)
    return OK


@njit_flat
def finish(policy: Clkwrk, accelerator: int, now: float) -> int:
    """See :func:`tuner.scheduling.policy.finish`."""
    if learn_last(policy, accelerator, ended(policy, accelerator, now)):
        _count_kind(policy, policy.cluster.accelerators[accelerator].kind)
    if policy.loads[accelerator].waiting:
        _send(policy, accelerator)
    return OK


@njit_flat
def wake(policy: Clkwrk, now: float) -> int:
    """See :func:`tuner.scheduling.policy.wake`; there is nothing to wait for."""
    begin(policy.cluster, now)
    return OK


@njit_flat
def _best(policy: Clkwrk, session: int) -> tuple[int, bool]:
    """Return where a request that comes now ends first, and whether it meets its deadline there.

    Of the instances where it meets it, if there are any; of equal ones where fewer requests are.
    """
    cluster = policy.cluster
    now, items = cluster.board[0].now, cluster.board[0].items
    latest = now + cluster.sessions[session].budget - cluster.board[0].early
    best, earliest, least = 0, np.inf, 0
    for accelerator in range(cluster.accelerators.size):
        kind = cluster.accelerators[accelerator].kind
        free = now
        if cluster.accelerators[accelerator].outstanding:
            free = max(cluster.accelerators[accelerator].free_at, now)
        queued = policy.loads[accelerator].waiting
        free += travel(cluster) * (queued + 1) + policy.loads[accelerator].queued
        end = free + believed(policy, kind, session, items)
        ahead = queued + cluster.accelerators[accelerator].outstanding
        if end < earliest or (end == earliest and ahead < least):
            best, earliest, least = accelerator, end, ahead
    # The deadline is the same on all: where the request ends first it meets it, if it does anywhere.
    return best, earliest <= latest + TOLERANCE


@njit_flat
def _send(policy: Clkwrk, accelerator: int) -> None:
    """Send the oldest request of an instance's queue; refuse those before that would be late."""
    cluster, sessions = policy.cluster, policy.cluster.sessions.size
    if policy.rule[0].refuses:
        for queue in range(accelerator * sessions, (accelerator + 1) * sessions):
            _refuse_late(policy, accelerator, queue)
    queue = oldest(cluster, accelerator * sessions, (accelerator + 1) * sessions)
    if queue >= 0:
        head = cluster.queues[queue].head
        length = _time_of(policy, accelerator, queue, head)
        send_request(cluster, policy.pool, queue, head, accelerator, length)
        _left(policy, accelerator, length)


@njit_flat
def _refuse_late(policy: Clkwrk, accelerator: int, queue: int) -> None:
    """Refuse the oldest requests of a queue that would be late even if they were sent now."""
    cluster, late = policy.cluster, 0
    start, head = cluster.board[0].now + travel(cluster), cluster.queues[queue].head
    while late < waiting(cluster, queue):
        length = _time_of(policy, accelerator, queue, head + late)
        if start + length <= deadline(cluster, queue, head + late) + TOLERANCE:
            break
        _left(policy, accelerator, length)
        late += 1
    if late:
        drop(cluster, queue, late)
        policy.pool.state[0].waiting -= late


@njit_flat
def _time_of(policy: Clkwrk, accelerator: int, queue: int, position: int) -> float:
    """Return how long a waiting request executes on its instance, as believed now, s."""
    kind, session = policy.cluster.accelerators[accelerator].kind, policy.cluster.queues[queue].session
    return float(believed(policy, kind, session, items_of(policy.cluster, queue, position)))


@njit_flat
def _left(policy: Clkwrk, accelerator: int, length: float) -> None:
    """Note that a request has left an instance's queue, and how long it was believed to execute, s."""
    policy.loads[accelerator].waiting -= 1
    if policy.loads[accelerator].waiting:
        # No less than 0: a long queue may not have been counted since more was learned.
        policy.loads[accelerator].queued = max(policy.loads[accelerator].queued - length, 0.0)
    else:
        policy.loads[accelerator].queued = 0.0  # rounding leaves a remainder


@njit_flat
def _count_kind(policy: Clkwrk, kind: int) -> None:
    """Count the queues of a kind of instances again, of which more was learned: long ones not every time.

    Of each instance up to about `SHORT` requests are counted, on average.
    """
    for accelerator in range(policy.loads.size):
        load = policy.loads[accelerator]
        if load.waiting and policy.cluster.accelerators[accelerator].kind == kind:
            load.learned += 1
            if load.learned * SHORT >= load.waiting:
                _count(policy, accelerator)


@njit_flat
def _count(policy: Clkwrk, accelerator: int) -> None:
    """Add up how long what waits for an instance executes, as believed now."""
    cluster, sessions, queued = policy.cluster, policy.cluster.sessions.size, 0.0
    for queue in range(accelerator * sessions, (accelerator + 1) * sessions):
        for position in range(cluster.queues[queue].head, cluster.queues[queue].tail):
            queued += _time_of(policy, accelerator, queue, position)
    policy.loads[accelerator].queued = queued
    policy.loads[accelerator].learned = 0


register(Clkwrk, Functions(arrive, finish, wake))
