"""The batch that a session would send now: how large it may be, and which requests are given up for it.

There is one candidate per session (Symphony, section 4.3). Its requests are always the oldest that wait, so
their number identifies them. The parts, as in the authors' later code:

* **Target batch**: the largest b with ``l(b) (1 + 1/n) + data b <= SLO - control - response``, where
  ``n = lambda l(b) / b`` accelerators carry the load; for ``n <= 1`` the time to gather a batch counts
  instead of ``l(b) / n``. Both are ``l(b) + b / lambda``, so there is one formula. Until the rate is known it
  is the largest b with ``l(b) <= SLO / 2``. It says how large a batch must be before no more requests are
  given up for it; it does not keep a batch from being larger.
* **Rate**: arrivals of the last ``WINDOW`` seconds, those of the window before the present one taken as
  spread evenly. It is measured every ``LOOK`` seconds; a relative change below ``NOTICEABLE`` is ignored.
* **Drop rules**, which say from which request on the batch begins when time is short:

  - ``WINDOW_DROP`` (Symphony). Shrink from the head until all the rest could be one batch that ends by the
    deadline of its own head. With the target as size, or with the size of this rest if that is less, give up
    those before it that such a batch would fail. Then extend the batch while the deadline of its head holds.
  - ``EARLY_DROP`` (Nexus, section 6.3). Give up the head until a batch of the target size, or of all that
    wait if they are fewer, ends by the deadline of its head. Then extend as above. Without a target, that of
    an unknown rate counts, which is Nexus' own.
  - ``LAZY_DROP`` (Clipper; Nexus' rival). Give up only what cannot even end in time alone. The batch is the
    largest that ends by the deadline of its head.

Where we differ: if not one request of a queue can end in time, all are given up at once; the authors' code
keeps them until the next arrival. On unlike accelerators they take the slowest profile for everything; we
take that of the kinds that can serve the session at all, for the target only, and form batches with the
profile of the accelerator that they would get.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat, njit_inline
from tuner.scheduling.fleet import Fleet, can_serve, in_time, largest_in_time
from tuner.scheduling.requests import deadline, drop, waiting
from tuner.scheduling.vocabulary import Cluster

__all__ = [
    "BETA_LAMBDA",
    "CANDIDATE",
    "EARLY_DROP",
    "LAZY_DROP",
    "LOOK",
    "OPTIONS",
    "SCHED_AT",
    "WINDOW",
    "WINDOW_DROP",
    "Symphony",
    "count_arrival",
    "fits",
    "form",
    "target_batch",
    "tune",
    "wanted",
]

WINDOW = 5.0
"""s over which the request rate is measured."""
LOOK = 0.05
"""s between two measurements of the rate."""
NOTICEABLE = 0.01
"""Relative change of the rate from which on the target batch is computed again."""

# When is a candidate schedulable before its time (SymphonyOptions.schedulable)?
# In the order of `Schedulable`: never, or as soon as it holds more than beta * lambda requests.
SCHED_AT, BETA_LAMBDA = range(2)

# Drop rules, from the mildest to the strictest (SymphonyOptions.drop).
LAZY_DROP, WINDOW_DROP, EARLY_DROP = range(3)  # in the order of `DropRule`

OPTIONS = np.dtype(
    [
        ("deferral", "f8"),  # 0: schedulable at once .. 1: at sched_at
        ("schedulable", "i8"),  # SCHED_AT or BETA_LAMBDA
        ("targeting", "i8"),  # whether there is a target batch
        ("drop", "i8"),  # drop rule
        ("order", "i8"),  # which of the schedulable candidates goes first
    ],
    align=True,
)
CANDIDATE = np.dtype(
    [
        ("planned", "i8"),  # requests of the batch that would be sent now; 0 if none waits
        ("kind", "i8"),  # kind of accelerator it is planned for
        ("free", "f8"),  # s, when that is free; -inf for as soon as the batch is there
        ("largest", "i8"),  # largest batch allowed: of the session, or the cap
        ("suffix", "i8"),  # position: from here on all that wait could be one batch (WINDOW_DROP)
        ("target", "i8"),  # target batch
        ("enough", "f8"),  # beta * lambda; infinite if it does not count
        ("beta", "f8"),  # s, the part of the latency that does not depend on the batch
        ("rate", "f8"),  # 1/s, the one that `target` and `enough` were computed with; 0 if not known
        ("look_at", "f8"),  # s, when to measure the rate again
        ("began", "f8"),  # s, begin of the present window; before 0 if nothing has arrived yet
        ("count", "i8"),  # arrivals in the present window
        ("before", "i8"),  # arrivals in the window before; -1 if there was none
    ],
    align=True,
)


class Symphony(NamedTuple):
    """The state; all arrays are modified in place."""

    cluster: Cluster
    fleet: Fleet
    options: np.ndarray  # (1,) OPTIONS
    candidates: np.ndarray  # (M,) CANDIDATE
    timers: np.ndarray  # tree over sessions: when its candidate must be looked at again, s
    ready: np.ndarray  # tree over sessions: place in the dispatch order, s, if schedulable
    of_kind: np.ndarray  # (K, 2 P) the same of those that a kind may be sent; no rows if there is one kind


@njit_inline
def fits(policy: Symphony, session: int, count: int, latest: float) -> bool:
    """Whether a batch of ``count`` requests decided now ends by ``latest`` on the accelerator planned for."""
    kind, free = policy.candidates[session].kind, policy.candidates[session].free
    return bool(in_time(policy.cluster, session, kind, count, free, latest))


@njit_flat
def wanted(policy: Symphony, session: int) -> int:
    """Return how large a batch must be in time for its head not to be given up, at least 1.

    With WINDOW_DROP, as far as is known before the batch is formed: then it may be less.
    """
    if policy.options[0].drop == LAZY_DROP:
        return 1
    cluster, candidates = policy.cluster, policy.candidates
    count = waiting(cluster, session)
    if policy.options[0].drop == WINDOW_DROP:
        tail = cluster.queues[session].tail
        count = min(count, tail - candidates[session].suffix)
    return int(max(min(count, candidates[session].target, candidates[session].largest), 1))


@njit_flat
def form(policy: Symphony, session: int, kind: int, free: float) -> None:
    """Form the session's batch; the requests that its drop rule gives up are dropped by one command.

    Args:
        policy: Cluster and candidate are modified in place.
        session: Which session.
        kind: For which kind of accelerator.
        free: When the accelerator is free, s; -inf for as soon as the batch is there.
    """
    candidates = policy.candidates
    head = policy.cluster.queues[session].head
    candidates[session].kind = kind
    candidates[session].free = free
    if policy.options[0].drop == WINDOW_DROP:
        keep = _plan_window_drop(policy, session)
    elif policy.options[0].drop == EARLY_DROP:
        keep = _plan_early_drop(policy, session)
    else:
        keep = _plan_lazy_drop(policy, session)
    if keep > head:
        drop(policy.cluster, session, keep - head)


@njit_flat
def _plan_window_drop(policy: Symphony, session: int) -> int:
    """Plan by WINDOW_DROP; return the first position to keep. Modifies the candidate in place."""
    cluster, candidates = policy.cluster, policy.candidates
    tail = cluster.queues[session].tail
    keep = cluster.queues[session].head
    suffix = max(candidates[session].suffix, keep, tail - cluster.sessions[session].largest)
    while suffix < tail:
        if fits(policy, session, tail - suffix, deadline(cluster, session, suffix)):
            break
        suffix += 1
    candidates[session].suffix = suffix
    count = min(tail - suffix, candidates[session].target, candidates[session].largest)
    if count == 0:
        keep = tail
    while keep < suffix and not fits(policy, session, count, deadline(cluster, session, keep)):
        keep += 1
    if keep == suffix:  # the rest is known to fit whole
        count = min(tail - keep, candidates[session].largest)
    else:
        count = _extend(policy, session, keep, count)
    candidates[session].planned = count
    return int(keep)


@njit_flat
def _plan_early_drop(policy: Symphony, session: int) -> int:
    """Plan by EARLY_DROP; return the first position to keep. Modifies the candidate in place."""
    cluster, candidates = policy.cluster, policy.candidates
    tail = cluster.queues[session].tail
    keep = cluster.queues[session].head
    count = 0
    while keep < tail:
        count = min(tail - keep, candidates[session].target, candidates[session].largest)
        if fits(policy, session, count, deadline(cluster, session, keep)):
            break
        keep += 1
    candidates[session].planned = _extend(policy, session, keep, count)
    return int(keep)


@njit_flat
def _plan_lazy_drop(policy: Symphony, session: int) -> int:
    """Plan by LAZY_DROP; return the first position to keep. Modifies the candidate in place."""
    cluster, candidates = policy.cluster, policy.candidates
    tail = cluster.queues[session].tail
    keep = cluster.queues[session].head
    while keep < tail and not fits(policy, session, 1, deadline(cluster, session, keep)):
        keep += 1
    candidates[session].planned = _extend(policy, session, keep, 1)
    return int(keep)


@njit_flat
def _extend(policy: Symphony, session: int, keep: int, count: int) -> int:
    """Return the largest batch from ``keep`` on that ends by its head's deadline; one of ``count`` does."""
    cluster, candidates = policy.cluster, policy.candidates
    high = min(cluster.queues[session].tail - keep, candidates[session].largest)
    if high <= count:
        return int(high)
    latest = deadline(cluster, session, keep)
    if not fits(policy, session, count + 1, latest):
        return int(count)
    kind, free = candidates[session].kind, candidates[session].free
    return int(largest_in_time(cluster, session, kind, count + 1, high, free, latest))


@njit_flat
def target_batch(cluster: Cluster, session: int, rate: float) -> int:
    """Return the target batch at a request rate (1/s; 0 if not known), on the slowest kind that is of use."""
    budget = cluster.sessions[session].budget - cluster.board[0].d_control
    each = cluster.board[0].d_data
    if rate > 0:
        each += 1 / rate
    else:
        budget = cluster.sessions[session].slo / 2
        each = 0.0
    count = 1
    while count < cluster.sessions[session].largest:
        if _slowest(cluster, session, count + 1) + (count + 1) * each > budget:
            break
        count += 1
    return count


@njit_flat
def _slowest(cluster: Cluster, session: int, count: int) -> float:
    """Return the longest time of a batch on the kinds that can serve its session; on all if none can, s."""
    slowest = of_all = 0.0
    for kind in range(cluster.latency.shape[0]):
        latency = cluster.latency[kind, session, count]
        of_all = max(of_all, latency)
        if can_serve(cluster, session, kind):
            slowest = max(slowest, latency)
    return slowest if slowest > 0 else of_all


@njit_flat
def tune(policy: Symphony, session: int) -> None:
    """Set ``target`` and ``enough`` by the options and the rate. The session's candidate is modified."""
    cluster, candidates = policy.cluster, policy.candidates
    rate = candidates[session].rate
    candidates[session].enough = np.inf
    if policy.options[0].schedulable == BETA_LAMBDA and rate > 0:
        candidates[session].enough = candidates[session].beta * rate
    if policy.options[0].targeting:
        candidates[session].target = target_batch(cluster, session, rate)
    elif policy.options[0].drop == EARLY_DROP:
        candidates[session].target = target_batch(cluster, session, 0.0)
    else:
        candidates[session].target = cluster.sessions[session].largest


@njit_inline
def count_arrival(policy: Symphony, session: int) -> None:
    """Count an arrival, and measure the rate if that is due. Modifies the candidate in place."""
    candidates = policy.candidates
    now = policy.cluster.board[0].now
    candidates[session].count += 1
    if now >= candidates[session].look_at:
        rate = _measured_rate(candidates, session, now)
        if abs(rate - candidates[session].rate) > NOTICEABLE * candidates[session].rate:
            candidates[session].rate = rate
            tune(policy, session)


@njit_flat
def _measured_rate(candidates: np.ndarray, session: int, now: float) -> float:
    """Return the request rate, 1/s, and go on to the next window if this one is over.

    Args:
        candidates: That of the session is modified in place.
        session: Which session.
        now: s.
    """
    began = candidates[session].began
    rate = 0.0
    if began < 0:  # the first arrival opens the first window and does not count in it
        began = now
        candidates[session].count = 0
    elif now >= began + WINDOW:
        idle = now >= began + 2 * WINDOW
        candidates[session].before = 0 if idle else candidates[session].count - 1
        candidates[session].count = 1
        began = now if idle else began + WINDOW
    passed = now - began
    if candidates[session].before >= 0:
        share = 1 - passed / WINDOW
        rate = (candidates[session].before * share + candidates[session].count) / WINDOW
    elif passed > 0:
        rate = candidates[session].count / passed
    candidates[session].began = began
    candidates[session].look_at = min(now + LOOK, began + WINDOW)
    return rate
