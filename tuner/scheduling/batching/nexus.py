"""Nexus: frontends send each request to a backend at once; backends run their sessions in turn.

Nexus, sections 4.3 and 6.1 to 6.3; Symphony, section 3, on what several frontends do to it. Nobody sees the
whole cluster: a frontend knows the plan and its own past (:mod:`~.nexus_frontend`), a backend
its own queues, one per session it hosts. The plan is made for an epoch (:mod:`~.nexus_plan`).

Rules of a backend
------------------
* When it is idle, the sessions take turns. A turn takes a batch of up to the planned size; a session
  without requests is passed over at once, so the backend never idles while something waits that can still
  be served (the duty cycle is at most the planned one).
* Early drop: a window of the planned size, or of what waits if that is less, slides from the head of the
  queue to the first request by whose deadline the whole window can be executed. All before are dropped,
  the window is the batch.
* Lazy drop: heads that cannot be served in time even alone are dropped; the batch is the largest, up to
  the planned size, that can be executed by the deadline of the head that remains.
* Order: a batch is of the requests with the least time left, which are at the head of the queue, or of those
  with the most (PARD, arXiv 2602.08747), at its tail. Then only what cannot be served in time even alone is
  dropped, for no head keeps a batch small. ``adaptive`` has the most time left first as long as a backend is
  asked for more than it can execute: when the requests that came, over about a second, need more than all of
  its time, in batches of the planned size.
* A frontend sends a request, with its data, when it arrives; so it is at the backend ``control + data``
  later, and each queue belongs to an accelerator. A batch starts when the backend is idle and its newest
  request is there; between batches nothing is waited for, for the backend serves itself.

Requests of a session that the plan leaves out are refused at once.

Where we differ: the order and ``cap="profile"`` are not in the paper. Its lazy rule drops what *has* missed
its deadline; ours also drops what cannot meet it any more, for that makes the rival stronger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat
from tuner.errors import InvalidInput, check_choice
from tuner.scheduling.batching.nexus_frontend import Frontends, make_frontends, move_on, receiver
from tuner.scheduling.batching.nexus_plan import (
    Hosted,
    Placement,
    check_placement,
    make_placement,
    uncapped,
)
from tuner.scheduling.cluster import ClusterSpec, build_cluster
from tuner.scheduling.policy import Functions, register
from tuner.scheduling.requests import (
    arrival_of,
    begin,
    deadline,
    dispatch,
    dispatch_newest,
    drop,
    push,
    waiting,
)
from tuner.scheduling.vocabulary import OK, TOLERANCE, Cluster, records

__all__ = ["Hosted", "Nexus", "NexusOptions", "Placement", "build", "make_rule"]

DROPS = ("early", "lazy")
CAPS = ("planned", "profile")
ORDERS = ("least_left", "most_left", "adaptive")
LEAST_LEFT, MOST_LEFT, ADAPTIVE = range(3)  # in the order of `ORDERS`
SECONDS = 1.0
"""Time over which a backend averages the demand on it, s."""

BACKEND = np.dtype(
    [
        ("first", "i8"),  # its first queue; the others follow
        ("count", "i8"),  # how many sessions it hosts
        ("turn", "i8"),  # whose turn is next, 0..count-1
        ("asked", "f8"),  # s of execution that requests need per s, of late; kept if the order is adaptive
        ("asked_at", "f8"),  # s, when the last request came
    ],
    align=True,
)
RULE = np.dtype(
    [
        ("early", "i8"),  # 1: early drop, 0: lazy drop
        ("order", "i8"),  # LEAST_LEFT, MOST_LEFT or ADAPTIVE
    ],
    align=True,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NexusOptions:
    """How the cluster is planned and run."""

    frontends: int = 1
    """How many send requests independently; the source of a request tells which one does."""
    drop: str = "early"
    """Rule by which backends drop: ``early`` or ``lazy``."""
    order: str = "least_left"
    """Which requests of a session are served first: those with the least time left, with the most
    (``most_left``), or with the most under overload only (``adaptive``)."""
    placement: Placement | Sequence[Sequence[tuple[int, int, float]]] | None = None
    """Per accelerator its (session, batch, rate) in turn; made by :func:`make_placement` if None."""
    cap: str = "planned"
    """Most that a turn takes: the ``planned`` batch, or ``profile``: all that meets the deadline."""
    rates: tuple[float, ...] | None = None
    """Requests/s per session to plan for, if the plan is made here; every session everywhere if None."""

    def __post_init__(self) -> None:
        if self.frontends < 1:
            raise InvalidInput("frontends", f"{self.frontends} is not a number of frontends", "use 1 or more")
        check_choice("drop", self.drop, DROPS)
        check_choice("order", self.order, ORDERS)
        check_choice("cap", self.cap, CAPS)


class Nexus(NamedTuple):
    """The state; modified in place: the cluster, the frontends and whose turn it is."""

    cluster: Cluster  # one queue per session and backend, those of a backend in a row
    frontends: Frontends
    backends: np.ndarray  # (N,) BACKEND
    batch: np.ndarray  # (Q,) planned batch size of the queue
    nearer: np.ndarray  # (Q,) s, when the last request came whose deadline is nearer than its session's SLO
    rule: np.ndarray  # (1,) RULE


def build(spec: ClusterSpec, options: NexusOptions | None = None) -> Nexus:
    """Return the state at time 0.

    Raises:
        InvalidInput: The placement or the rates do not fit the cluster.
    """
    options = options or NexusOptions()
    plan = options.placement if options.placement is not None else make_placement(spec, options.rates)
    plan = plan if isinstance(plan, Placement) else Placement.of(plan)
    check_placement(plan, spec)
    plan = uncapped(plan, spec) if options.cap == "profile" else plan
    backends = records(len(plan.backends), BACKEND)
    queues: list[tuple[int, int]] = []
    batch: list[int] = []
    rates: list[list[tuple[int, float]]] = [[] for _ in spec.sessions]
    for accelerator, row in enumerate(plan.backends):
        backends[accelerator].first, backends[accelerator].count = len(queues), len(row)
        for share in row:
            rates[share.session].append((len(queues), share.rate))
            queues.append((share.session, accelerator))
            batch.append(share.batch)
    for session, hosts in enumerate(rates):
        if not hosts:
            hosts.append((len(queues), 1.0))
            queues.append((session, -1))
            batch.append(1)
    rule = make_rule(options)
    most = max(len(row) for row in plan.backends)
    cluster = build_cluster(spec, queues=queues, commands=most + 2)
    frontends = make_frontends(rates, options.frontends)
    nearer = np.full(len(queues), -np.inf)
    return Nexus(cluster, frontends, backends, np.array(batch, np.int64), nearer, rule)


def make_rule(options: NexusOptions) -> np.ndarray:
    """Return by which rules backends drop and in which order they serve.   # (1,) RULE."""
    rule = records(1, RULE)
    rule[0] = (options.drop == "early", ORDERS.index(options.order))
    return rule


@njit_flat
def arrive(policy: Nexus, session: int, source: int, number: int, now: float) -> int:
    """See :func:`tuner.scheduling.policy.arrive`."""
    cluster = policy.cluster
    begin(cluster, now)
    queue = receiver(policy.frontends, source, session)
    status = push(cluster, queue, number, now)
    if status != OK:
        return int(status)
    if cluster.board[0].early > 0:
        policy.nearer[queue] = now
    move_on(policy.frontends, source, session)
    accelerator = cluster.queues[queue].accelerator
    if accelerator < 0:
        drop(cluster, queue, 1)
        return OK
    if policy.rule[0].order == ADAPTIVE:
        _count_demand(policy, accelerator, queue, now)
    if cluster.accelerators[accelerator].outstanding == 0:
        _serve(policy, accelerator, now)
    return OK


@njit_flat
def finish(policy: Nexus, accelerator: int, now: float) -> int:
    """See :func:`tuner.scheduling.policy.finish`."""
    begin(policy.cluster, now)
    policy.cluster.accelerators[accelerator].outstanding -= 1
    _serve(policy, accelerator, now)
    return OK


@njit_flat
def wake(policy: Nexus, now: float) -> int:
    """See :func:`tuner.scheduling.policy.wake`: never needed, idle backends have empty queues."""
    begin(policy.cluster, now)
    return OK


@njit_flat
def _serve(policy: Nexus, accelerator: int, now: float) -> None:
    """Let an idle backend execute the batch of the first session, in turn, that has one."""
    cluster = policy.cluster
    first, count = policy.backends[accelerator].first, policy.backends[accelerator].count
    turn = policy.backends[accelerator].turn
    newest = _newest_first(policy, accelerator, now)
    for _ in range(count):
        queue = first + turn
        turn = turn + 1 if turn + 1 < count else 0
        if not waiting(cluster, queue):
            continue
        early = policy.rule[0].early == 1 and not newest
        size = _early_drop(policy, queue, now) if early else _lazy_drop(policy, queue, newest, now)
        if size:
            offset = waiting(cluster, queue) - size if newest else 0
            start = _start(policy, queue, offset, size, now)
            if newest:
                dispatch_newest(cluster, queue, size, accelerator, start)
            else:
                dispatch(cluster, queue, size, accelerator, start)
            policy.backends[accelerator].turn = turn
            return


@njit_flat
def _early_drop(policy: Nexus, queue: int, now: float) -> int:
    """Drop the requests before the first window that ends in time; return its size, 0 if there is none."""
    cluster, count = policy.cluster, waiting(policy.cluster, queue)
    gone, size = 0, min(policy.batch[queue], count)
    while size and not _fits(policy, queue, gone, size, now):
        gone += 1
        size = min(size, count - gone)
    if gone:
        drop(cluster, queue, gone)
    return int(size)


@njit_flat
def _lazy_drop(policy: Nexus, queue: int, newest: bool, now: float) -> int:
    """Drop the oldest requests that are late even alone; return the size of the batch, 0 without one.

    The batch is of the oldest requests that remain or, if ``newest``, of the newest.
    """
    cluster, count = policy.cluster, waiting(policy.cluster, queue)
    gone = 0
    while gone < count and not _fits(policy, queue, gone, 1, now):
        gone += 1
    if gone:
        drop(cluster, queue, gone)
    count -= gone
    size = min(policy.batch[queue], count)
    while size > 1 and not _fits(policy, queue, count - size if newest else 0, size, now):
        size -= 1
    return int(size)


@njit_flat
def _count_demand(policy: Nexus, accelerator: int, queue: int, now: float) -> None:
    """Add a request that came to a backend to the demand on it. Modifies ``policy``."""
    cluster, size = policy.cluster, policy.batch[queue]
    kind, session = cluster.accelerators[accelerator].kind, cluster.queues[queue].session
    each = cluster.latency[kind, session, size] / size
    policy.backends[accelerator].asked = _demand(policy, accelerator, now) + each / SECONDS
    policy.backends[accelerator].asked_at = now


@njit_flat
def _demand(policy: Nexus, accelerator: int, now: float) -> float:
    """Return the demand on a backend: s of execution per s that recent requests need in planned batches."""
    passed = now - policy.backends[accelerator].asked_at
    return float(policy.backends[accelerator].asked * math.exp(-passed / SECONDS))


@njit_flat
def _newest_first(policy: Nexus, accelerator: int, now: float) -> bool:
    """Whether a backend now serves the newest requests first, which have the most time left."""
    order = policy.rule[0].order
    return bool(order == MOST_LEFT or (order == ADAPTIVE and _demand(policy, accelerator, now) > 1))


@njit_flat
def _fits(policy: Nexus, queue: int, offset: int, size: int, now: float) -> bool:
    """Whether the batch of ``size`` requests, ``offset`` after the head, ends by its first one's deadline."""
    cluster = policy.cluster
    session, accelerator = cluster.queues[queue].session, cluster.queues[queue].accelerator
    latency = cluster.latency[cluster.accelerators[accelerator].kind, session, size]
    latest = deadline(cluster, queue, cluster.queues[queue].head + offset)
    return bool(_start(policy, queue, offset, size, now) + latency <= latest + TOLERANCE)


@njit_flat
def _start(policy: Nexus, queue: int, offset: int, size: int, now: float) -> float:
    """Return when an idle backend has all of ``size`` requests, ``offset`` after the head, s.

    A request with a nearer deadline stands before others that came sooner, as if it had come sooner, too.
    Where it is now is not known, so that it is taken to be in the batch.
    """
    cluster = policy.cluster
    newest = cluster.queues[queue].head + offset + size - 1
    sent = max(arrival_of(cluster, queue, newest), policy.nearer[queue])
    return float(max(now, sent + cluster.board[0].d_control + cluster.board[0].d_data))


register(Nexus, Functions(arrive, finish, wake))
