"""Clipper: per-session batches whose largest size adapts to what batches were seen to take, with lazy drop.

Crankshaw et al., Clipper, NSDI 2017, section 4.3. An accelerator that becomes idle takes at once (work
conserving) the session with the oldest request of those it serves. Requests whose deadline has passed by
then are dropped, no earlier (lazy drop); at least one request of the others is always sent. How many, says
``sizing``:

``aimd``
    Section 4.3.1. The largest batch grows by ``increase`` after every batch that was full and met the
    objective, and shrinks by ``decrease`` (10 %) after every batch that missed it. A batch is timed from
    being sent to having ended, network included; the objective is ``share`` of the time a request has (SLO
    less what is allowed for the response), 1.0 in the paper, although a request that arrives just after a
    batch left then has to wait for all of it. A batch that was not full says nothing of larger ones: without
    this rule, which the paper leaves open, the limit would climb for ever at low load.
``throughput``
    The deadline-throughput form of the released code: requests per second, as the mean over the last
    ``window`` batches, times the time that the oldest request has left; 1 until something was measured.
``budget``
    What Nexus (section 4.3) takes for Clipper's lazy drop: the largest batch that the profile lets end before
    the deadline of its oldest request, at least 1.

Where we differ: Clipper learns per container; here alike accelerators (of one kind) share what they learn of
a session, so that many learn as fast as one. Its delayed batching (4.3.2) is not here: see ``timeout``.

Clipper leaves placement to others. By default every accelerator serves every session; an ``assignment`` says
otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from tuner._jit import njit_flat
from tuner.errors import InvalidInput, check_choice
from tuner.scheduling.cluster import ClusterSpec, build_cluster
from tuner.scheduling.policy import Functions, register
from tuner.scheduling.requests import (
    arrival_of,
    begin,
    deadline,
    dispatch,
    drop,
    has_room,
    overdue,
    push,
    waiting,
)
from tuner.scheduling.tournament import key_of, least_index, least_key, make_tree, set_key, tree_of
from tuner.scheduling.vocabulary import NEVER, OK, Cluster, records

__all__ = ["Clipper", "ClipperOptions", "build"]

Sizing = Literal["aimd", "throughput", "budget"]
AIMD, THROUGHPUT, BUDGET = range(3)  # in the order of Sizing

LONGEST_WINDOW = 100_000
"""Batches that are remembered per session and kind of accelerator at most."""

RULE = np.dtype(
    [
        ("sizing", "i8"),  # AIMD, THROUGHPUT or BUDGET
        ("increase", "f8"),  # requests added to the limit
        ("decrease", "f8"),  # share of the limit taken away
        ("share", "f8"),  # share of the budget that a batch may take
    ],
    align=True,
)
LEARNED = np.dtype(
    [
        ("limit", "f8"),  # largest batch, AIMD
        ("total", "f8"),  # sum of the samples, requests per second
        ("measured", "i8"),  # batches measured so far
    ],
    align=True,
)
RUNNING = np.dtype(
    [
        ("session", "i8"),  # -1 if it is not known
        ("requests", "i8"),
        ("sent", "f8"),  # s
    ],
    align=True,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClipperOptions:
    """How large batches are, and which accelerators serve which session."""

    sizing: Sizing = "aimd"
    """What the largest batch follows: see the module."""
    increase: float = 1.0
    """Requests by which the largest batch grows (aimd)."""
    decrease: float = 0.1
    """Share by which it shrinks (aimd)."""
    share: float = 1.0
    """Share of the SLO, less the allowance for the response, that a batch may take (aimd)."""
    window: int = 100
    """Batches that the throughput is the mean of (throughput)."""
    assignment: tuple[tuple[int, ...], ...] = ()
    """Per session the accelerators that serve it; all serve all if empty."""

    def __post_init__(self) -> None:
        check_choice("sizing", self.sizing, get_args(Sizing))
        if not 0 < self.increase < math.inf:
            raise InvalidInput("increase", f"{self.increase} is not positive and finite", "such as 1")
        if not 0 < self.decrease < 1:
            raise InvalidInput("decrease", f"{self.decrease} is not between 0 and 1", "such as 0.1")
        if not 0 < self.share <= 1:
            raise InvalidInput("share", f"{self.share} is not between 0 and 1", "such as 0.5")
        if not (isinstance(self.window, int) and 1 <= self.window <= LONGEST_WINDOW):
            raise InvalidInput(
                "window", f"{self.window} is not a whole number of 1..{LONGEST_WINDOW}", "such as 100"
            )


class Clipper(NamedTuple):
    """The state; all arrays are modified in place, the last two and ``rule`` excepted."""

    cluster: Cluster
    rule: np.ndarray  # (1,) RULE
    learned: np.ndarray  # (M, K) LEARNED
    samples: np.ndarray  # (M, K, W) requests per second, a ring; W is 1 where not needed
    oldest: np.ndarray  # tree over sessions: arrival of the oldest waiting request, s
    idle: np.ndarray  # tree over accelerators: its number if idle
    running: np.ndarray  # (N,) RUNNING, of the batch it executes
    residents: np.ndarray  # (N, R) sessions of an accelerator, -1: no more; R is 0 if all serve all
    homes: np.ndarray  # (M, H) accelerators of a session in rising order, -1: no more


def build(spec: ClusterSpec, options: ClipperOptions | None = None) -> Clipper:
    """Return the state at time 0: the limit of every session is 1, nothing was measured.

    Raises:
        InvalidInput: The assignment does not fit the cluster.
    """
    options = options or ClipperOptions()
    sessions, accelerators = len(spec.sessions), len(spec.kinds)
    rule = records(1, RULE)
    rule[0] = (get_args(Sizing).index(options.sizing), options.increase, options.decrease, options.share)
    learned = records((sessions, max(spec.kinds) + 1), LEARNED)
    learned["limit"] = 1.0
    window = options.window if options.sizing == "throughput" else 1
    cluster = build_cluster(spec)
    running = records(accelerators, RUNNING)
    running["session"] = -1
    residents, homes = _placement(options.assignment, sessions, accelerators)
    return Clipper(
        cluster=cluster,
        rule=rule,
        learned=learned,
        samples=np.zeros((*learned.shape, window)),
        oldest=make_tree(sessions),
        idle=tree_of(np.where(cluster.accelerators["outstanding"], np.inf, np.arange(accelerators))),
        running=running,
        residents=residents,
        homes=homes,
    )


def _placement(
    assignment: Sequence[Sequence[int]], sessions: int, accelerators: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sessions of each accelerator and the accelerators of each session.   # (N, R), (M, H)."""
    if not assignment:
        return np.zeros((accelerators, 0), np.int64), np.zeros((sessions, 0), np.int64)
    if len(assignment) != sessions:
        raise InvalidInput(
            "assignment", f"{len(assignment)} entries for {sessions} sessions", "give one each"
        )
    for homes in assignment:
        if not homes or not set(homes) <= set(range(accelerators)):
            problem = f"{list(homes)} are not accelerators of 0..{accelerators - 1}"
            raise InvalidInput("assignment", problem, "give each session at least one")
    rows = [sorted(set(homes)) for homes in assignment]
    columns = [[s for s, homes in enumerate(rows) if a in homes] for a in range(accelerators)]
    return _ragged(columns), _ragged(rows)


def _ragged(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Return rows of unlike length, filled up with -1."""
    table = np.full((len(rows), max(map(len, rows))), -1, np.int64)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return table


@njit_flat
def arrive(policy: Clipper, session: int, source: int, number: int, now: float) -> int:  # noqa: ARG001
    """See :func:`tuner.scheduling.policy.arrive`."""
    cluster = policy.cluster
    begin(cluster, now)
    status = push(cluster, session, number, now)
    if status != OK:
        return int(status)
    if waiting(cluster, session) == 1 or cluster.board[0].early > 0:  # it may have become the oldest
        _requeue(policy, session)
    accelerator = _idle_home(policy, session)
    if accelerator >= 0:
        _serve(policy, accelerator, now)
    return OK


@njit_flat
def finish(policy: Clipper, accelerator: int, now: float) -> int:
    """See :func:`tuner.scheduling.policy.finish`: learn from the batch, then take the next."""
    begin(policy.cluster, now)
    policy.cluster.accelerators[accelerator].outstanding -= 1
    set_key(policy.idle, accelerator, float(accelerator))
    _learn(policy, accelerator, now)
    _serve(policy, accelerator, now)
    return OK


@njit_flat
def wake(policy: Clipper, now: float) -> int:
    """See :func:`tuner.scheduling.policy.wake`: room was lacking."""
    cluster = policy.cluster
    begin(cluster, now)
    cluster.board[0].wake_at = NEVER
    for accelerator in range(cluster.accelerators.size):
        if key_of(policy.idle, accelerator) < np.inf:
            _serve(policy, accelerator, now)
    return OK


@njit_flat
def _idle_home(policy: Clipper, session: int) -> int:
    """Return the idle accelerator with the lowest number that serves a session, -1 if there is none."""
    if policy.homes.shape[1] == 0:
        return int(least_index(policy.idle)) if least_key(policy.idle) < np.inf else -1
    for place in range(policy.homes.shape[1]):
        accelerator = policy.homes[session, place]
        if accelerator >= 0 and key_of(policy.idle, accelerator) < np.inf:
            return int(accelerator)
    return -1


@njit_flat
def _oldest_resident(policy: Clipper, accelerator: int) -> int:
    """Return the session with the oldest waiting request of those an accelerator serves, -1 if none waits."""
    if policy.residents.shape[1] == 0:
        return int(least_index(policy.oldest)) if least_key(policy.oldest) < np.inf else -1
    best, oldest = -1, np.inf
    for place in range(policy.residents.shape[1]):
        session = policy.residents[accelerator, place]
        if session >= 0 and key_of(policy.oldest, session) < oldest:
            best, oldest = session, key_of(policy.oldest, session)
    return int(best)


@njit_flat
def _serve(policy: Clipper, accelerator: int, now: float) -> None:
    """Give an idle accelerator a batch, dropping the late requests met on the way."""
    cluster = policy.cluster
    session = _oldest_resident(policy, accelerator)
    while session >= 0 and has_room(cluster):
        size = _drop_late(policy, session, accelerator, now)
        if size and has_room(cluster):
            start = now + cluster.board[0].d_control + cluster.board[0].d_data * size
            dispatch(cluster, session, size, accelerator, start)
            set_key(policy.idle, accelerator, np.inf)
            policy.running[accelerator].session = session
            policy.running[accelerator].requests = size
            policy.running[accelerator].sent = now
        _requeue(policy, session)
        session = _oldest_resident(policy, accelerator) if size == 0 else -1
    cluster.board[0].wake_at = NEVER if has_room(cluster) else now


@njit_flat
def _drop_late(policy: Clipper, session: int, accelerator: int, now: float) -> int:
    """Drop the requests whose deadline has passed; return how large a batch the others make."""
    cluster = policy.cluster
    present, late = waiting(cluster, session), overdue(cluster, session, now)
    size = 0
    if late < present:
        latest = deadline(cluster, session, cluster.queues[session].head + late)
        size = min(present - late, _limit(policy, session, accelerator, latest - now))
    if late:
        drop(cluster, session, late)
    return int(size)


@njit_flat
def _limit(policy: Clipper, session: int, accelerator: int, remaining: float) -> int:
    """Return the largest batch, at least 1, where the oldest request has ``remaining`` seconds left."""
    cluster, sizing = policy.cluster, policy.rule[0].sizing
    kind, largest = cluster.accelerators[accelerator].kind, cluster.sessions[session].largest
    if sizing == AIMD:
        return int(min(policy.learned[session, kind].limit, largest))
    if sizing == THROUGHPUT:
        known = min(policy.learned[session, kind].measured, policy.samples.shape[2])
        rate = policy.learned[session, kind].total / max(known, 1)
        return max(int(min(rate * remaining, largest)), 1)
    size, room = largest, remaining - cluster.board[0].d_control
    while size > 1 and cluster.board[0].d_data * size + cluster.latency[kind, session, size] > room:
        size -= 1
    return int(size)


@njit_flat
def _learn(policy: Clipper, accelerator: int, now: float) -> None:
    """Take in how long the batch of an accelerator took, if it was executed and is known."""
    cluster, rule, batch = policy.cluster, policy.rule[0], policy.running[accelerator]
    session, kind = batch.session, cluster.accelerators[accelerator].kind
    if session < 0 or cluster.board[0].void:
        return
    took = now - batch.sent
    known = policy.learned[session, kind]
    if rule.sizing == AIMD:
        if took > rule.share * cluster.sessions[session].budget:
            known.limit = max(known.limit * (1.0 - rule.decrease), 1.0)
        elif batch.requests >= int(known.limit):
            known.limit = min(known.limit + rule.increase, float(cluster.sessions[session].largest))
    if rule.sizing == THROUGHPUT and took > 0:
        slot = known.measured % policy.samples.shape[2]
        known.total += batch.requests / took - policy.samples[session, kind, slot]
        policy.samples[session, kind, slot] = batch.requests / took
        known.measured += 1


@njit_flat
def _requeue(policy: Clipper, session: int) -> None:
    """Note the arrival of the session's oldest request."""
    cluster = policy.cluster
    key = np.inf
    if waiting(cluster, session):
        key = arrival_of(cluster, session, cluster.queues[session].head)
    set_key(policy.oldest, session, key)


register(Clipper, Functions(arrive, finish, wake))
