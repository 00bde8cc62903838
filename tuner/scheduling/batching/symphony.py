"""Symphony: a batch is sent when it can take in no further request, not when an accelerator is idle.

Deferred batching (Symphony, sections 4.2-4.5, appendix C). Per session there is a candidate, the batch that
would be sent now. It becomes *schedulable* at ``sched_at = deadline - l(b + 1) - delay(b + 1)``, after which
another request could not join, or earlier (:class:`SymphonyOptions`). A schedulable candidate gets the
accelerator that is free first, as soon as its batch, sent now, would not wait there; of several candidates
the first in dispatch order.

The paper's two kinds of threads are one sequential policy here:

* ``ModelThread.schedule`` is :func:`arrive`, ``update_candidate`` is ``_plan``. The model timer and the drop
  timer are one timer per session, ``timers``: of a candidate that is not yet schedulable the time when it
  will be; of one that waits for an accelerator the time from which on it is too late as it is.
* ``RankThread.mc`` is the tree ``ready``, ``gpu_free_at`` is :class:`~tuner.scheduling.fleet.Fleet`,
  ``on_gpu_timer`` is ``_settle``, and ``granted_gpu`` is ``_grant``.

Where we differ:

* The GPU timer is set for the candidate that goes next; the paper sets it for the one with the longest delay,
  and would then send the next one earlier than needed.
* A candidate that an accelerator comes too late for is formed again for this accelerator, at once. The paper
  discards it until the next arrival, which may be after its deadline.
* ``sched_at`` allows for the data of the further request, as in the authors' later code (appendix C: not),
  and a candidate that is as large as allowed is schedulable at once.
* On unlike accelerators a candidate is planned for a kind on which nothing of it is given up: of these, the
  one with the accelerator that is free first. It may be sent to each of them, so each kind has a dispatch
  order. Where something must be given up, it is planned for the fastest kind or, when an accelerator has
  come for it, for the one that would answer it first.
* An accelerator whose batch has not ended in time gets nothing until it has, and no candidate is planned for
  a kind of which each hangs: its batch is late by more than it takes.

At deferral 0 this is work-conserving like :mod:`~.eager`; it differs from it in that batches
are formed by the drop rule and that there are other dispatch orders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from tuner._jit import njit_flat, njit_inline
from tuner.errors import InvalidInput, check_choice
from tuner.scheduling.batching.candidate import (
    CANDIDATE,
    OPTIONS,
    Symphony,
    count_arrival,
    fits,
    form,
    tune,
    wanted,
)
from tuner.scheduling.cluster import ClusterSpec, build_cluster
from tuner.scheduling.fleet import (
    delay,
    earliest,
    earliest_of,
    ended,
    first_to_end,
    free_at,
    in_time,
    make_fleet,
    next_kind,
    send,
)
from tuner.scheduling.policy import Functions, register
from tuner.scheduling.requests import arrival_of, begin, deadline, push, waiting
from tuner.scheduling.tournament import key_of, least_index, least_key, make_tree, set_key
from tuner.scheduling.vocabulary import OK, TOLERANCE, Cluster, records

__all__ = [
    "DropRule",
    "Order",
    "Schedulable",
    "Symphony",
    "SymphonyOptions",
    "build",
    "derive",
    "reconfigure",
]

GRACE = 1e-6
"""s from a candidate's latest start until it is formed again: more than what rounding could take back."""
ROOM = 2
"""Commands that one step may give: a drop and a dispatch."""

# Dispatch orders among the schedulable candidates (SymphonyOptions.order).
BY_SCHED_AT, BY_DEADLINE, BY_LATEST = range(3)  # in the order of `Order`

Schedulable = Literal["sched_at", "beta_lambda"]
DropRule = Literal["lazy", "window", "early"]
Order = Literal["sched_at", "deadline", "latest"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SymphonyOptions:
    """What can be chosen; the defaults are those of the authors' later code.

    Raises:
        InvalidInput: A value is not one of those allowed.
    """

    deferral: float = 1.0
    """How long a candidate waits: 0 not at all, 1 until ``sched_at``; between, this part of the way there
    from the arrival of its oldest request."""
    schedulable: Schedulable = "sched_at"
    """``beta_lambda``: also schedulable if it holds more than beta * lambda requests (section 4.3)."""
    target_batch: bool = True
    """Whether requests are given up only until the batch has its target size; see
    :mod:`~tuner.scheduling.batching.candidate`. If not, until it is as large as it can be."""
    cap: int = 0
    """Largest batch, 0 for none but the session's own."""
    drop: DropRule = "window"
    """Which requests are given up when time is short; see :mod:`~tuner.scheduling.batching.candidate`."""
    order: Order = "sched_at"
    """Which schedulable candidate goes first: with the earliest ``sched_at``, the earliest deadline, or the
    earliest latest start of the batch as it is."""

    def __post_init__(self) -> None:
        if not 0 <= self.deferral <= 1:
            raise InvalidInput(
                "deferral", f"{self.deferral} is not in 0..1", "0 is eager, 1 is fully deferred"
            )
        if self.cap < 0:
            raise InvalidInput("cap", f"{self.cap} is below 0", "write the largest batch, or 0 for none")
        for name, choices in (("schedulable", Schedulable), ("drop", DropRule), ("order", Order)):
            check_choice(name, getattr(self, name), get_args(choices))


def build(spec: ClusterSpec, options: SymphonyOptions | None = None) -> Symphony:
    """Return the state at time 0."""
    sessions = len(spec.sessions)
    candidates = records(sessions, CANDIDATE)
    candidates["began"] = -1.0
    candidates["before"] = -1
    cluster = build_cluster(spec)
    fleet, ready = make_fleet(cluster), make_tree(sessions)
    policy = Symphony(
        cluster=cluster,
        fleet=fleet,
        options=records(1, OPTIONS),
        candidates=candidates,
        timers=make_tree(sessions),
        ready=ready,
        of_kind=np.full((len(fleet.of_kind), ready.size), np.inf),
    )
    derive(policy, options)
    return policy


def derive(policy: Symphony, options: SymphonyOptions | None = None) -> None:
    """Compute anew what candidates are formed by: beta, of the profiles, and what :func:`reconfigure` sets.

    Args:
        policy: Modified in place.
        options: The new ones; the defaults if None.
    """
    cluster, shares = policy.cluster, _shares(policy.cluster)
    policy.candidates["beta"] = [
        _beta(cluster.latency[:, session, : cluster.sessions[session].largest + 1], shares[session])
        for session in range(cluster.sessions.size)
    ]
    reconfigure(policy, options or SymphonyOptions())


def reconfigure(policy: Symphony, options: SymphonyOptions) -> None:
    """Change the options, between events.

    The candidates are formed again at the next event, which is a wake at once.

    Args:
        policy: Modified in place.
        options: The new ones.
    """
    cluster, candidates = policy.cluster, policy.candidates
    policy.options[0] = (
        options.deferral,
        get_args(Schedulable).index(options.schedulable),
        options.target_batch,
        get_args(DropRule).index(options.drop),
        get_args(Order).index(options.order),
    )
    for session in range(len(candidates)):
        largest = int(cluster.sessions[session].largest)
        candidates[session].largest = min(largest, options.cap) if options.cap else largest
        tune(policy, session)
        candidates[session].suffix = 0
        for order in (policy.ready, *policy.of_kind):
            set_key(order, session, np.inf)
        if waiting(cluster, session):
            set_key(policy.timers, session, cluster.board[0].now)
            cluster.board[0].wake_at = cluster.board[0].now


def _shares(cluster: Cluster) -> np.ndarray:
    """Return the shares of each kind in the accelerators that can serve a session; in all if none can.

    The result is of shape (M, K).
    """
    counts = np.bincount(cluster.accelerators["kind"])  # (K,)
    alone = delay(cluster, 1) + cluster.latency[:, :, 1].T  # (M, K) s
    useful = counts * (alone <= cluster.sessions["budget"][:, None] + TOLERANCE)
    useful = np.where(useful.any(axis=1, keepdims=True), useful, counts)
    return np.asarray(useful / useful.sum(axis=1, keepdims=True))


def _beta(latency: np.ndarray, shares: np.ndarray) -> float:
    """Return the latency of an empty batch by a straight line through the profile, s, at least 0.

    Args:
        latency: (K, B+1) s.
        shares: (K,) of the accelerators that are of each kind; the mean over them is returned.
    """
    table = shares @ latency[: shares.size, 1:]  # (B,)
    sizes = np.arange(1, table.size + 1) - (table.size + 1) / 2  # from their mean
    slope = sizes @ table / max(float(sizes @ sizes), 1.0)
    return max(float(table.mean() - slope * (table.size + 1) / 2), 0.0) if table.size > 1 else 0.0


@njit_inline
def arrive(policy: Symphony, session: int, source: int, number: int, now: float) -> int:  # noqa: ARG001
    """See :func:`tuner.scheduling.policy.arrive`."""
    cluster, candidates = policy.cluster, policy.candidates
    begin(cluster, now)
    status = push(cluster, session, number, now)
    if status != OK:
        return status
    count_arrival(policy, session)
    planned = candidates[session].planned
    kind = _kind_for(policy, session)
    if (
        planned + 1 == waiting(cluster, session)
        and cluster.board[0].early == 0
        and 0 < planned < candidates[session].largest  # also if the clock steps back after new options
        and now < key_of(policy.timers, session)
        and key_of(policy.ready, session) == np.inf
        and kind == candidates[session].kind
    ):  # all that wait are planned and the time is not up: forming it again would include the new one too
        candidates[session].planned = planned + 1
        candidates[session].free = -np.inf
        _enlist(policy, session)
    else:
        _plan(policy, session, kind, -np.inf)
    _settle(policy)
    return OK


@njit_flat
def finish(policy: Symphony, accelerator: int, now: float) -> int:
    """See :func:`tuner.scheduling.policy.finish`."""
    begin(policy.cluster, now)
    ended(policy.cluster, policy.fleet, accelerator)
    _settle(policy)
    return OK


@njit_flat
def wake(policy: Symphony, now: float) -> int:
    """See :func:`tuner.scheduling.policy.wake`: a candidate's time has come, or that to send one ahead."""
    begin(policy.cluster, now)
    while least_key(policy.timers) <= now and _has_room(policy.cluster):
        session = least_index(policy.timers)
        _plan(policy, session, _kind_for(policy, session), -np.inf)
    _settle(policy)
    return OK


@njit_inline
def _kind_for(policy: Symphony, session: int) -> int:
    """Return the kind of accelerator to plan a session's candidate for."""
    return int(policy.fleet.kinds[0]) if policy.fleet.kinds.size == 1 else _choose_kind(policy, session)


@njit_flat
def _choose_kind(policy: Symphony, session: int) -> int:
    """Return the kind of the accelerator that is free first, of those for which nothing is given up."""
    cluster = policy.cluster
    latest = deadline(cluster, session, cluster.queues[session].head)
    return int(next_kind(cluster, policy.fleet, session, wanted(policy, session), latest))


@njit_inline
def _settle(policy: Symphony) -> None:
    """Send schedulable candidates while there are accelerators for them; say when to go on."""
    board = policy.cluster.board
    send_at = np.inf
    if least_key(policy.ready) < np.inf:
        send_at = _serve(policy) if policy.fleet.kinds.size == 1 else _serve_unlike(policy)
    board[0].wake_at = max(min(least_key(policy.timers), send_at), board[0].now)


@njit_flat
def _serve(policy: Symphony) -> float:
    """Send schedulable candidates to like accelerators; return when the next one can be sent, s."""
    cluster, fleet, candidates = policy.cluster, policy.fleet, policy.candidates
    now = cluster.board[0].now
    while least_key(policy.ready) < np.inf:
        accelerator = earliest(cluster, fleet)
        if accelerator < 0:
            break
        session = least_index(policy.ready)
        send_at: float = free_at(fleet, accelerator) - delay(cluster, candidates[session].planned)
        if send_at > now:
            return send_at
        if not _has_room(cluster):
            return float(now)
        _grant(policy, session, accelerator)
    return np.inf


@njit_flat
def _serve_unlike(policy: Symphony) -> float:
    """Send schedulable candidates to unlike accelerators; return when the next one can be sent, s."""
    cluster = policy.cluster
    now = cluster.board[0].now
    accelerator, send_at = _next_accelerator(policy)
    while send_at <= now:
        if not _has_room(cluster):
            return float(now)
        kind = cluster.accelerators[accelerator].kind
        _grant(policy, least_index(policy.of_kind[kind]), accelerator)
        accelerator, send_at = _next_accelerator(policy)
    return float(send_at)


@njit_flat
def _next_accelerator(policy: Symphony) -> tuple[int, float]:
    """Return the accelerator that gets the next candidate, and when that can be sent, s; never if none does.

    Of several kinds it is the one that can be sent a candidate first; of those that can be now, the one that
    is free first.
    """
    cluster, fleet = policy.cluster, policy.fleet
    best = (np.inf, np.inf, -1)
    for index in range(fleet.kinds.size):
        kind = fleet.kinds[index]
        if least_key(policy.of_kind[kind]) < np.inf:
            accelerator = earliest_of(cluster, fleet, kind)
            if accelerator >= 0:
                session = least_index(policy.of_kind[kind])
                free = free_at(fleet, accelerator)
                send_at = free - delay(cluster, policy.candidates[session].planned)
                offer = (max(send_at, cluster.board[0].now), free, accelerator)
                if offer < best:  # noqa: PLR1730 - numba compares tuples, but has no `min` of them
                    best = offer
    return best[2], best[0]


@njit_flat
def _grant(policy: Symphony, session: int, accelerator: int) -> None:
    """Send a schedulable candidate to an accelerator, or form it again if it would be late there."""
    cluster, candidates = policy.cluster, policy.candidates
    kind = cluster.accelerators[accelerator].kind
    free = free_at(policy.fleet, accelerator)
    planned = candidates[session].planned
    candidates[session].free = free
    latest = deadline(cluster, session, cluster.queues[session].head)
    if kind == candidates[session].kind and fits(policy, session, planned, latest):
        send(cluster, policy.fleet, session, planned, accelerator)
        _plan(policy, session, _kind_for(policy, session), -np.inf)
    elif policy.fleet.kinds.size == 1:
        _plan(policy, session, kind, free)
    else:
        _plan_unlike(policy, session, accelerator)


@njit_flat
def _plan_unlike(policy: Symphony, session: int, accelerator: int) -> None:
    """Form a candidate for an accelerator or, if something is given up there, for the first to end it."""
    cluster, fleet = policy.cluster, policy.fleet
    latest = deadline(cluster, session, cluster.queues[session].head)
    count = wanted(policy, session)
    kind, free = cluster.accelerators[accelerator].kind, free_at(fleet, accelerator)
    if not in_time(cluster, session, kind, count, free, latest):
        accelerator = first_to_end(cluster, fleet, session, count)
        kind, free = cluster.accelerators[accelerator].kind, free_at(fleet, accelerator)
    _plan(policy, session, kind, free)


@njit_flat
def _plan(policy: Symphony, session: int, kind: int, free: float) -> None:
    """Form a session's candidate for a kind of accelerator that is free at some time."""
    form(policy, session, kind, free)
    _enlist(policy, session)


@njit_inline
def _enlist(policy: Symphony, session: int) -> None:
    """Find when a session's candidate is schedulable; set its timer and its place in the dispatch order."""
    cluster, candidates = policy.cluster, policy.candidates
    planned = candidates[session].planned
    if planned == 0:
        set_key(policy.timers, session, np.inf)
        _offer(policy, session, np.inf)
        return
    now = cluster.board[0].now
    kind = candidates[session].kind
    arrival = arrival_of(cluster, session, cluster.queues[session].head)
    must_end = arrival + cluster.sessions[session].budget
    latest = must_end - cluster.latency[kind, session, planned] - delay(cluster, planned)
    sched_at = latest
    due = now
    if planned < candidates[session].largest:
        sched_at = must_end - cluster.latency[kind, session, planned + 1] - delay(cluster, planned + 1)
        due = arrival + policy.options[0].deferral * (sched_at - arrival)
    if due > now and planned <= candidates[session].enough:
        set_key(policy.timers, session, due)
        _offer(policy, session, np.inf)
        return
    set_key(policy.timers, session, max(latest, now - TOLERANCE) + GRACE)
    place = sched_at
    if policy.options[0].order == BY_DEADLINE:
        place = must_end
    elif policy.options[0].order == BY_LATEST:
        place = latest
    _offer(policy, session, place)


@njit_inline
def _offer(policy: Symphony, session: int, place: float) -> None:
    """Note the place of a session's candidate in the dispatch order; infinite: it is not schedulable."""
    set_key(policy.ready, session, place)
    if policy.fleet.kinds.size > 1:
        _offer_each(policy, session, place)


@njit_flat
def _offer_each(policy: Symphony, session: int, place: float) -> None:
    """Note the place for the kind that the candidate is for, and for those on which it would be in time too.

    A candidate that was formed for the time when an accelerator is free goes nowhere else.
    """
    cluster, candidate = policy.cluster, policy.candidates[session]
    latest = deadline(cluster, session, cluster.queues[session].head)
    count = wanted(policy, session)
    for index in range(policy.fleet.kinds.size):
        kind = policy.fleet.kinds[index]
        offered = kind == candidate.kind
        if place < np.inf and candidate.free == -np.inf and not offered:
            offered = in_time(cluster, session, kind, count, -np.inf, latest)
        set_key(policy.of_kind[kind], session, place if offered else np.inf)


@njit_flat
def _has_room(cluster: Cluster) -> bool:
    """Whether one more step can note its commands in this event."""
    return bool(cluster.board[0].commands + ROOM <= cluster.commands.size)


register(Symphony, Functions(arrive, finish, wake))
