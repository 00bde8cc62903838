"""Clockwork: one strategy per session and batch size, the one that has to start first goes first.

The rival of Symphony's evaluation (sections 2 and 5) as its public code behaves, see Gujarati et al., OSDI
2020. It keeps latency predictable by deciding everything centrally from estimated execution times.

Rules
-----
* Each session has one queue per batch size b; a request waits in all of them. A queue that holds b requests
  is a strategy; its priority is the deadline of its head minus the execution time of b; the smallest goes
  first, of equal ones of a session the smaller batch, of equal sessions the lower number.
* An accelerator takes work while it will be free within ``schedule_ahead``, unless as many batches are
  outstanding there as fill this time when they run as expected. The accelerator that is free first goes
  first, and takes the first strategy. Requests that a batch of b cannot answer in time leave the queues of b
  and of larger sizes; then the strategies are compared again.
* If nothing left, the largest batch whose queue holds as many requests is sent, not below the strategy's own.
* A request that has left all queues is dropped. The deadline is ``margin`` before the SLO (or, if that is
  earlier, so that the answer is there in time).
* Accelerators of unlike kinds have queues and priorities of their own; they share the requests.

How the queues of a session share one ring stands in :mod:`tuner.scheduling.batching.clockwork_strategy`.

Where we differ: all sizes of the profile may be used, as Symphony's authors ran it (``sizes="all"``), or the
powers of two up to 16 as in Clockwork. Loading models is not modelled: every model is everywhere. An
execution that took longer than the whole budget is not learned, for its size would never be tried again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tuner._jit import njit_flat
from tuner.errors import InvalidInput, check_choice
from tuner.scheduling.batching.clockwork_strategy import (
    Clockwork,
    admit,
    bring_forward,
    compare,
    drop_lost,
    earliest_start,
    enlarge,
    expire,
)
from tuner.scheduling.cluster import ClusterSpec, build_cluster
from tuner.scheduling.policy import Functions, register
from tuner.scheduling.requests import begin, dispatch, has_room, push
from tuner.scheduling.tournament import least_index, least_key, make_tree, set_key, tree_of
from tuner.scheduling.vocabulary import NEVER, OK, records

__all__ = ["Clockwork", "ClockworkOptions", "build", "derive"]

POWERS = (1, 2, 4, 8, 16)
SIZES = ("all", "powers")
ESTIMATES = ("table", "measured")
WINDOW = 10
"""Runs that an estimate is made from: the largest of so few is their 99th percentile."""
DEEPEST = 1024
"""Batches that may be outstanding on an accelerator at most."""

RULE = np.dtype(
    [
        ("ahead", "f8"),  # s before it is free an accelerator takes work
        ("measured", "i8"),  # 1: execution times are learned
    ],
    align=True,
)
LINE = np.dtype(
    [
        ("head", "i8"),  # position of the oldest outstanding batch, without wrapping
        ("tail", "i8"),  # position of the next to be sent
        ("ended", "f8"),  # s, when the last batch ended
    ],
    align=True,
)
BATCH = np.dtype(
    [
        ("session", "i8"),
        ("size_index", "i8"),
        ("start", "f8"),  # s, not earlier
        ("execution", "f8"),  # s, as estimated
    ],
    align=True,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockworkOptions:
    """How Clockwork is run."""

    sizes: str = "all"
    """Batch sizes: ``all``, or ``powers``: 1, 2, 4, 8, 16."""
    schedule_ahead: float = 0.010
    """s before it is free an accelerator takes work."""
    margin: float = 0.005
    """s before the SLO that the deadline lies."""
    estimate: str = "table"
    """Execution times: ``table``, or ``measured``: the 99th percentile of the last 10 runs of the size."""

    def __post_init__(self) -> None:
        for name, value, words in (("sizes", self.sizes, SIZES), ("estimate", self.estimate, ESTIMATES)):
            check_choice(name, value, words)
        for name, seconds in (("schedule_ahead", self.schedule_ahead), ("margin", self.margin)):
            if not 0 <= seconds < math.inf:
                raise InvalidInput(name, f"{seconds} is negative or not finite", "use seconds, at least 0")


def build(spec: ClusterSpec, options: ClockworkOptions | None = None) -> Clockwork:
    """Return the state at time 0."""
    options = options or ClockworkOptions()
    cluster = build_cluster(spec)
    largest = cluster.sessions["largest"]
    sizes = np.arange(1, largest.max() + 1) if options.sizes == "all" else np.array(POWERS)
    sizes = sizes[sizes <= largest.max()].astype(np.int64)
    rule = records(1, RULE)
    rule[0] = (options.schedule_ahead, int(options.estimate == "measured"))
    kinds, accelerators = cluster.latency.shape[0], cluster.accelerators
    shape = (kinds, len(spec.sessions), len(sizes))
    free_at = accelerators["free_at"]  # (N,) s
    free = [tree_of(np.where(accelerators["kind"] == kind, free_at, np.inf)) for kind in range(kinds)]
    shortest = float(cluster.latency[:, :, 1].min())
    depth = min(options.schedule_ahead / shortest + 2, DEEPEST)
    lines = records(free_at.size, LINE)
    lines["tail"] = accelerators["outstanding"]
    outstanding = records((free_at.size, 1 << math.ceil(math.log2(depth))), BATCH)
    outstanding["session"][:, 0] = -1  # of a batch that executes at time 0 only the end is known
    outstanding["start"][:, 0] = free_at
    policy = Clockwork(
        cluster=cluster,
        rule=rule,
        kinds=np.unique(spec.kinds).astype(np.int64),
        sizes=sizes,
        usable=np.searchsorted(sizes, largest, side="right").astype(np.int64),
        estimate=np.zeros(shape),
        heads=np.zeros(shape, np.int64),
        runnable=np.zeros(shape[:2], np.int64),
        chosen=np.zeros(shape[:2], np.int64),
        strategies=np.stack([make_tree(len(spec.sessions)) for _ in range(kinds)]),
        free=np.stack(free),
        lines=lines,
        outstanding=outstanding,
        runs=np.zeros((*(shape if rule[0].measured else (0, 0, 0)), WINDOW)),
        measured=np.zeros(shape, np.int64),
    )
    derive(policy, options)
    return policy


def derive(policy: Clockwork, options: ClockworkOptions | None = None) -> None:
    """Take the deadlines, and the execution times of what was not measured, from what the cluster assumes.

    Args:
        policy: Modified in place.
        options: Those that it was built with.
    """
    sessions = policy.cluster.sessions
    margin = (options or ClockworkOptions()).margin
    sessions["budget"] = np.minimum(sessions["budget"], sessions["slo"] - margin)
    table = policy.cluster.latency[:, :, policy.sizes]
    policy.estimate[:] = np.where(policy.measured > 0, policy.estimate, table)
    _compare_all(policy)


@njit_flat
def _compare_all(policy: Clockwork) -> None:
    """Compare the strategies of all sessions, for estimates or deadlines have changed."""
    for kind in range(policy.kinds.size):
        for session in range(policy.cluster.sessions.size):
            compare(policy, policy.kinds[kind], session)


@njit_flat
def arrive(policy: Clockwork, session: int, source: int, number: int, now: float) -> int:  # noqa: ARG001
    """See :func:`tuner.scheduling.policy.arrive`."""
    begin(policy.cluster, now)
    status = push(policy.cluster, session, number, now)
    if status != OK:
        return int(status)
    for kind in range(policy.kinds.size):
        if policy.cluster.board[0].early > 0:  # it may have become the head of any size's queue
            compare(policy, policy.kinds[kind], session)
        else:
            admit(policy, policy.kinds[kind], session)
    _schedule(policy, now)
    return OK


@njit_flat
def finish(policy: Clockwork, accelerator: int, now: float) -> int:
    """See :func:`tuner.scheduling.policy.finish`."""
    cluster, line = policy.cluster, policy.lines[accelerator]
    begin(cluster, now)
    cluster.accelerators[accelerator].outstanding -= 1
    batch = policy.outstanding[accelerator, line.head & (policy.outstanding.shape[1] - 1)]
    if policy.rule[0].measured and batch.session >= 0 and not cluster.board[0].void:
        kind = cluster.accelerators[accelerator].kind
        _learn(policy, kind, batch.session, batch.size_index, now - max(batch.start, line.ended))
    line.head += 1
    line.ended = now
    cluster.accelerators[accelerator].free_at = _expected(policy, accelerator, now)
    _note_free(policy, accelerator)
    _schedule(policy, now)
    return OK


@njit_flat
def wake(policy: Clockwork, now: float) -> int:
    """See :func:`tuner.scheduling.policy.wake`: an accelerator takes work again, or room was lacking."""
    begin(policy.cluster, now)
    _schedule(policy, now)
    return OK


@njit_flat
def _schedule(policy: Clockwork, now: float) -> None:
    """Let accelerators take work while one does and there is some."""
    cluster = policy.cluster
    kind = _next_kind(policy, now)
    while kind >= 0 and has_room(cluster):
        accelerator = least_index(policy.free[kind])
        session = least_index(policy.strategies[kind])
        if expire(policy, accelerator, session, policy.chosen[kind, session], now):
            drop_lost(policy, session)
            compare(policy, kind, session)
        else:
            index = enlarge(policy, accelerator, session, now)
            _send(policy, accelerator, session, index, now)
        kind = _next_kind(policy, now)
    cluster.board[0].wake_at = now if kind >= 0 else _next_time(policy)


@njit_flat
def _next_kind(policy: Clockwork, now: float) -> int:
    """Return the kind of the accelerator that takes work next, -1 if none does or there is none to take."""
    best, first = -1, np.inf
    for kind in range(policy.free.shape[0]):  # those that nobody has are never free
        free = least_key(policy.free[kind])
        if (
            least_key(policy.strategies[kind]) < np.inf
            and free - policy.rule[0].ahead <= now
            and free < first
        ):
            best, first = kind, free
    return best


@njit_flat
def _next_time(policy: Clockwork) -> float:
    """Return when the next accelerator takes work, s; never if there is none."""
    first = NEVER
    for kind in range(policy.free.shape[0]):
        if least_key(policy.strategies[kind]) < np.inf:
            first = min(first, least_key(policy.free[kind]) - policy.rule[0].ahead)
    return float(first)


@njit_flat
def _send(policy: Clockwork, accelerator: int, session: int, index: int, now: float) -> None:
    """Send the batch at the head of a size's queue."""
    cluster, size = policy.cluster, policy.sizes[index]
    kind, line = cluster.accelerators[accelerator].kind, policy.lines[accelerator]
    bring_forward(policy, session, policy.heads[kind, session, index], size)
    start = earliest_start(policy, accelerator, size, now)
    dispatch(cluster, session, size, accelerator, start)
    end = start + policy.estimate[kind, session, index]
    cluster.commands[cluster.board[0].commands - 1].finish = end
    cluster.accelerators[accelerator].free_at = end
    batch = policy.outstanding[accelerator, line.tail & (policy.outstanding.shape[1] - 1)]
    batch.session = session
    batch.size_index = index
    batch.start = start
    batch.execution = policy.estimate[kind, session, index]
    line.tail += 1
    _note_free(policy, accelerator)
    for each in range(policy.kinds.size):
        compare(policy, policy.kinds[each], session)


@njit_flat
def _note_free(policy: Clockwork, accelerator: int) -> None:
    """Note when an accelerator is free; never while it has as many batches as there is room for."""
    cluster, line = policy.cluster, policy.lines[accelerator]
    full = line.tail - line.head == policy.outstanding.shape[1]
    free = np.inf if full else cluster.accelerators[accelerator].free_at
    set_key(policy.free[cluster.accelerators[accelerator].kind], accelerator, free)


@njit_flat
def _expected(policy: Clockwork, accelerator: int, now: float) -> float:
    """Return when an accelerator that begins its next batch now will have ended all it was sent, s."""
    line, end = policy.lines[accelerator], now
    for position in range(line.head, line.tail):
        batch = policy.outstanding[accelerator, position & (policy.outstanding.shape[1] - 1)]
        end = max(end, batch.start) + batch.execution
    return float(end)


@njit_flat
def _learn(policy: Clockwork, kind: int, session: int, index: int, execution: float) -> None:
    """Estimate the execution time of a size from its last runs."""
    if execution > policy.cluster.sessions[session].budget:
        return
    count = policy.measured[kind, session, index] + 1
    policy.measured[kind, session, index] = count
    policy.runs[kind, session, index, (count - 1) % WINDOW] = execution
    longest = execution
    for run in range(min(count, WINDOW)):
        longest = max(longest, policy.runs[kind, session, index, run])
    policy.estimate[kind, session, index] = longest
    compare(policy, kind, session)


register(Clockwork, Functions(arrive, finish, wake))
