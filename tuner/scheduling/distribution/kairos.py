"""Kairos: a least-cost matching sends requests to instances (section 5.1, eq. 1-8).

The paper calls a request with a size a query, and the SLO a QoS target.

At every arrival and end of a request, while an instance is idle, the waiting requests (rows) are matched with
all instances (columns), idle or not. A request on an instance costs ``C_j L_ij``. ``L_ij`` is the time until
it would end there, with what the instance still has to do (eq. 2). ``C_j`` is what a second of the instance
is worth, at most 1: the time of the largest request on the fastest type over that on this one. If the request
would end after its SLO times the guard, ``L_ij`` is ten times the SLO (eq. 5, 8). ``C_j`` weighs that, too:
on a type more than ten times as slow as the fastest being late may cost less than in time elsewhere. Of the
pairs, those with an idle instance are sent (eq. 6, 7); the other requests wait for the next matching.

Execution times are learned without prior knowledge (:mod:`~.predictor`), unless ``learn`` is off. Without
``refuse`` no request is refused: a late one executes when an instance has nothing better to do. With
``refuse`` a request is refused once no instance could serve it in time, even if it were idle.

Where we go further: real times scatter around the prediction, and a fixed guard of 2 % does not know by how
much. We take the end to be normally distributed, with the measured deviation of the predictions for this
request and for the one that the instance still executes. A pair costs what eq. 8 then expects: the penalty
with the risk of being late, otherwise the length. Where predictions are exact this is eq. 8 itself.

As in the authors' code, only the oldest requests are candidates, twice as many as there are instances. Unlike
there, a request whose SLO has passed still costs the penalty everywhere, as in eq. 8. Several sessions share
the instances: ``C_j`` and the SLO are the session's own. Assumed delays of the network count as execution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat, njit_inline
from tuner.errors import InvalidInput
from tuner.scheduling.cluster import ClusterSpec, build_cluster
from tuner.scheduling.distribution.matching import Matching, make_matching, match
from tuner.scheduling.distribution.pool import (
    Pool,
    ended,
    enqueue,
    make_pool,
    refuse_request,
    send_request,
    travel,
)
from tuner.scheduling.distribution.predictor import Predictor, believed, learn_last, make_predictor, spread
from tuner.scheduling.policy import Functions, register
from tuner.scheduling.requests import arrival_of, begin, items_of
from tuner.scheduling.vocabulary import NEVER, OK, TOLERANCE, Cluster, records

__all__ = ["Kairos", "KairosOptions", "build", "derive"]

PER_INSTANCE = 2
"""Waiting requests per instance that one matching considers, the oldest first."""
SAFE = 6.0
"""Standard deviations of slack from which on the probability of being late counts as 0 (it is below 1e-9)."""
NOISE = 1 << 12
"""How many factors on predictions are drawn ahead, and then used again and again; a power of 2."""

RULE = np.dtype(
    [
        ("guard", "f8"),  # xi: share of the SLO that a request must keep
        ("penalty", "f8"),  # SLOs that a late pair counts as
        ("spread", "f8"),  # factor on the error of predictions that was seen
        ("learns", "i8"),  # 1: execution times are learned; 0: the table is believed
        ("refuses", "i8"),  # 1: what cannot be in time any more is refused
        ("drawn", "i8"),  # factors on predictions used so far
    ],
    align=True,
)
SEEN = np.dtype([("largest", "i8")], align=True)  # items of the session's largest request so far
CANDIDATE = np.dtype([("queue", "i8"), ("position", "i8")], align=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class KairosOptions:
    """The constants of the cost matrix, and where the policy takes execution times from."""

    guard: float = 0.98
    """A request must end within this part of the SLO, by prediction (xi)."""
    penalty: float = 10.0
    """What a late pair costs, in SLOs, before ``C_j`` weighs it."""
    spread: float = 1.0
    """Factor on the error of predictions that was seen, with which the risk of being late is weighed."""
    learn: bool = True
    """Whether execution times are learned; if not, the profile is believed."""
    refuse: bool = False
    """Whether a request that no instance could serve in time any more is refused."""
    prediction_noise: float = 0.0
    """Standard deviation of an error on each prediction, relative: to see what errors do (Fig. 16b)."""
    seed: int = 0
    """Of that error."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("guard", 0, 1),
            ("penalty", 1, 1e6),
            ("spread", 0, 10),
            ("prediction_noise", 0, 1),
        ):
            value = getattr(self, name)
            if not low <= value <= high or (name == "guard" and value == 0):
                raise InvalidInput(name, f"{value} is out of range", f"use a number from {low} to {high:g}")
        if self.seed < 0:
            raise InvalidInput("seed", f"{self.seed} is negative", "use 0 or more")


class Kairos(NamedTuple):
    """The state; all arrays are modified in place, ``noise`` excepted."""

    cluster: Cluster
    pool: Pool
    predictor: Predictor
    matching: Matching
    rule: np.ndarray  # (1,) RULE
    seen: np.ndarray  # (M,) SEEN
    weight: np.ndarray  # (K, M) C_j
    left: np.ndarray  # (N,) s until an instance could begin with a request that is sent now
    left_variance: np.ndarray  # (N,) s^2, variance of that prediction's error
    times: np.ndarray  # (K,) s that the request being looked at would take
    times_variance: np.ndarray  # (K,) s^2, variance of that prediction's error
    candidates: np.ndarray  # (PER_INSTANCE N,) CANDIDATE, the oldest first
    pointers: np.ndarray  # (M,) position of the session's next request to be looked at
    noise: np.ndarray  # (NOISE,) or (1,) factors on predictions, used in turn


def build(spec: ClusterSpec, options: KairosOptions | None = None) -> Kairos:
    """Return the state at time 0."""
    options = options or KairosOptions()
    # Room for all that one matching can do: refuse every candidate, then send a request to every instance.
    cluster = build_cluster(spec, commands=len(spec.sessions) + (PER_INSTANCE + 1) * len(spec.kinds) + 64)
    kinds, sessions, size = cluster.latency.shape
    instances = cluster.accelerators.size
    rule = records(1, RULE)
    flags = (int(options.learn), int(options.refuse))
    rule[0] = (options.guard, options.penalty, options.spread, *flags, 0)
    noise = np.ones(1)
    if options.prediction_noise > 0:
        drawn = np.random.default_rng(options.seed).normal(1.0, options.prediction_noise, NOISE)
        noise = np.maximum(drawn, 0.0)
    policy = Kairos(
        cluster=cluster,
        pool=make_pool(cluster),
        predictor=make_predictor(kinds, sessions, size - 1),
        matching=make_matching(instances, PER_INSTANCE * instances),
        rule=rule,
        seen=records(sessions, SEEN),
        weight=np.ones((kinds, sessions)),
        left=np.zeros(instances),
        left_variance=np.zeros(instances),
        times=np.zeros(kinds),
        times_variance=np.zeros(kinds),
        candidates=records(PER_INSTANCE * instances, CANDIDATE),
        pointers=np.zeros(sessions, np.int64),
        noise=noise,
    )
    derive(policy, options)
    return policy


def derive(policy: Kairos, options: KairosOptions | None = None) -> None:
    """Weigh the kinds of instances by the profile, unless execution times are learned.

    Args:
        policy: Modified in place.
        options: Those that it was built with.
    """
    if not (options or KairosOptions()).learn:
        for session in range(policy.seen.size):
            policy.seen[session].largest = policy.cluster.sessions[session].largest
            _update_weights(policy, session)


@njit_inline
def arrive(policy: Kairos, session: int, source: int, number: int, now: float) -> int:  # noqa: ARG001
    """See :func:`tuner.scheduling.policy.arrive`; `wake` matches all that comes at one instant."""
    cluster = policy.cluster
    begin(cluster, now)
    status = enqueue(policy, session, number, now)
    if status == OK and cluster.board[0].items > policy.seen[session].largest:
        policy.seen[session].largest = cluster.board[0].items
        _update_weights(policy, session)
    return status


@njit_flat
def finish(policy: Kairos, accelerator: int, now: float) -> int:
    """See :func:`tuner.scheduling.policy.finish`."""
    learn_last(policy, accelerator, ended(policy, accelerator, now))
    if policy.rule[0].learns and policy.pool.running[accelerator].items:
        _update_weights(policy, policy.pool.running[accelerator].session)
    policy.cluster.board[0].wake_at = now if policy.pool.state[0].waiting else NEVER
    return OK


@njit_flat
def wake(policy: Kairos, now: float) -> int:
    """See :func:`tuner.scheduling.policy.wake`: something arrived or ended just now, or room was lacking."""
    cluster = policy.cluster
    begin(cluster, now)
    cluster.board[0].wake_at = NEVER
    if policy.pool.state[0].idle == 0 or policy.pool.state[0].waiting == 0:
        return OK
    count = _list_candidates(policy)
    while policy.rule[0].refuses and _refuse(policy, count):
        if not _has_room(cluster):
            cluster.board[0].wake_at = now
            return OK
        count = _list_candidates(policy)  # those that come next may be too late, too
    if count == 0:
        return OK
    instances = cluster.accelerators.size
    wide = count > instances  # more requests than instances: instances are the rows
    for accelerator in range(instances):
        policy.left[accelerator] = travel(cluster)
        policy.left_variance[accelerator] = 0.0
        if cluster.accelerators[accelerator].outstanding:
            policy.left[accelerator] += max(cluster.accelerators[accelerator].free_at - now, 0.0)
            kind, session = cluster.accelerators[accelerator].kind, policy.pool.running[accelerator].session
            length = policy.pool.running[accelerator].length
            policy.left_variance[accelerator] = _error_variance(policy, kind, session, length)
    for index in range(count):
        _fill_costs(policy, index, wide)
    match(policy.matching, min(count, instances), max(count, instances))
    for index in range(count):
        accelerator = policy.matching.owner[index] if wide else policy.matching.mate[index]
        if accelerator >= 0 and cluster.accelerators[accelerator].outstanding == 0:
            _send(policy, index, accelerator)
    return OK


@njit_flat
def _list_candidates(policy: Kairos) -> int:
    """Write the oldest waiting requests of all sessions into ``candidates``; return how many there are."""
    cluster, sessions = policy.cluster, policy.pointers.size
    for session in range(sessions):
        policy.pointers[session] = cluster.queues[session].head
    for index in range(policy.candidates.size):
        queue, earliest = -1, np.inf
        for session in range(sessions):
            position = policy.pointers[session]
            if position < cluster.queues[session].tail:
                arrival = arrival_of(cluster, session, position)
                if arrival < earliest:
                    queue, earliest = session, arrival
        if queue < 0:
            return index
        policy.candidates[index].queue = queue
        policy.candidates[index].position = policy.pointers[queue]
        policy.pointers[queue] += 1
    return int(policy.candidates.size)


@njit_flat
def _has_room(cluster: Cluster) -> bool:
    """Whether this event can still refuse all candidates, and then send a request to every instance."""
    most = (PER_INSTANCE + 1) * cluster.accelerators.size
    return bool(cluster.board[0].commands + most <= cluster.commands.size)


@njit_flat
def _refuse(policy: Kairos, count: int) -> bool:
    """Refuse the candidates that no instance could serve in time; return whether there were any."""
    cluster, refused = policy.cluster, False
    for index in range(count):
        queue, position = policy.candidates[index].queue, policy.candidates[index].position
        least = np.inf
        for kind in range(policy.times.size):
            least = min(least, believed(policy, kind, queue, items_of(cluster, queue, position)))
        waited = cluster.board[0].now - arrival_of(cluster, queue, position)
        if waited + travel(cluster) + least > cluster.sessions[queue].budget + TOLERANCE:
            refuse_request(cluster, policy.pool, queue, position)
            refused = True
    return refused


@njit_flat
def _fill_costs(policy: Kairos, index: int, wide: bool) -> None:
    """Write the cost of a candidate on each instance into the matrix of the matching (eq. 2 and 8).

    Args:
        policy: Its matching, ``times`` and ``times_variance`` are modified in place.
        index: The candidate.
        wide: Whether candidates are the columns of the matrix, and not its rows.
    """
    cluster, cost = policy.cluster, policy.matching.cost
    queue, position = policy.candidates[index].queue, policy.candidates[index].position
    waited = cluster.board[0].now - arrival_of(cluster, queue, position)  # W_i
    target = cluster.sessions[queue].budget  # T_slo
    guarded = policy.rule[0].guard * target - waited
    for kind in range(policy.times.size):
        policy.times[kind] = _predicted_time(policy, kind, queue, items_of(cluster, queue, position))
        policy.times_variance[kind] = _error_variance(policy, kind, queue, policy.times[kind])
    for accelerator in range(cluster.accelerators.size):
        kind = cluster.accelerators[accelerator].kind
        length = policy.left[accelerator] + policy.times[kind]  # L_ij
        if length > guarded:
            length = policy.rule[0].penalty * target
        else:
            risk = _late_probability(
                target - waited - length, policy.left_variance[accelerator] + policy.times_variance[kind]
            )
            length += risk * (policy.rule[0].penalty * target - length)
        if wide:
            cost[accelerator, index] = policy.weight[kind, queue] * length
        else:
            cost[index, accelerator] = policy.weight[kind, queue] * length


@njit_inline
def _error_variance(policy: Kairos, kind: int, session: int, length: float) -> float:
    """Return the variance of the error of a predicted time, s^2."""
    deviation = policy.rule[0].spread * spread(policy.predictor, kind, session) * length
    return float(deviation * deviation)


@njit_inline
def _late_probability(slack: float, variance: float) -> float:
    """Return the probability that a normal error of this variance (s^2) exceeds the slack, s."""
    if slack * slack >= SAFE * SAFE * variance:
        return 0.0
    return 0.5 * math.erfc(slack / math.sqrt(2.0 * variance))


@njit_flat
def _send(policy: Kairos, index: int, accelerator: int) -> None:
    """Send a candidate. The positions of later candidates of its queue stay valid."""
    cluster = policy.cluster
    queue, position = policy.candidates[index].queue, policy.candidates[index].position
    kind = cluster.accelerators[accelerator].kind
    length = _predicted_time(policy, kind, queue, items_of(cluster, queue, position))
    send_request(cluster, policy.pool, queue, position, accelerator, length)


@njit_inline
def _predicted_time(policy: Kairos, kind: int, session: int, items: int) -> float:
    """Return how long a request is believed to take, s, with the error of ``prediction_noise``."""
    length = believed(policy, kind, session, items)
    if policy.noise.size > 1:
        length *= policy.noise[policy.rule[0].drawn & (policy.noise.size - 1)]
        policy.rule[0].drawn += 1
    return length


@njit_flat
def _update_weights(policy: Kairos, session: int) -> None:
    """Compute the heterogeneity coefficients ``C_j`` of a session anew."""
    largest, kinds = policy.seen[session].largest, policy.times.size
    fastest = np.inf
    for kind in range(kinds):
        policy.times[kind] = believed(policy, kind, session, largest)
        if policy.times[kind] > 0:
            fastest = min(fastest, policy.times[kind])
    for kind in range(kinds):
        known = policy.times[kind] > 0 and fastest < np.inf
        policy.weight[kind, session] = fastest / policy.times[kind] if known else 1.0


register(Kairos, Functions(arrive, finish, wake))
