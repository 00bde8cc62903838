"""The batcher of Triton and TF Serving: a batch goes once it is large or its oldest request old enough.

What most people run today, and the yardstick of servers that know no deadlines. Per session, as an idle
accelerator is there and fewer than ``instances`` of its batches execute:

* at once, with the largest preferred size that the queue holds (Triton's ``preferred_batch_size``; without
  any, the largest batch is the one preferred size, as in TF Serving);
* else, once the oldest request has waited for the delay, with all requests up to the largest batch
  (``max_queue_delay_microseconds``, ``batch_timeout_micros``). A queue whose delay has passed does not
  mind preferred sizes; without a delay they go first, and what is left follows.

Of several sessions the one with the oldest request goes first, to the idle accelerator with the lowest
number. Late requests execute, too; ``drop_expired`` is Triton's queue policy REJECT with the SLO as timeout.

TF Serving pads a batch to the next of the ``allowed`` sizes: ``Cluster.latency`` of the state is the padded
table, and whoever executes batches has to take their latency from there. A full queue refuses the new
request (``max_queue_size``, ``max_enqueued_batches``); such requests pass through a queue of their own,
number M + session, and are dropped at arrival.

Where we differ: an accelerator executes one batch at a time, while instances on one GPU can overlap; TF
Serving's threads take the models in turn, not by age.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from tuner._jit import njit_flat
from tuner.errors import InvalidInput
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
from tuner.scheduling.tournament import least_index, least_key, make_tree, set_key, tree_of
from tuner.scheduling.vocabulary import OK, Cluster, records

__all__ = ["Timeout", "TimeoutOptions", "build", "derive"]

UNLIMITED = 1 << 62
"""Requests in a queue that refuses none."""

RULE = np.dtype(
    [
        ("delay", "f8"),  # s that the oldest request may wait for others
        ("instances", "i8"),  # batches that may execute at once
        ("capacity", "i8"),  # requests that may wait
        ("expires", "i8"),  # 1 if requests are dropped at their deadline
        ("running", "i8"),  # batches that execute
    ],
    align=True,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeoutOptions:
    """Each may be one value for all sessions, or a tuple with one per session."""

    max_batch: int | tuple[int, ...] = 0
    """Largest batch, never more than the profile holds; 0: as large as that."""
    delay: float | tuple[float, ...] = 0.0
    """s that the oldest request of a batch may wait for others."""
    preferred: tuple[int, ...] | tuple[tuple[int, ...], ...] = ()
    """Sizes that go at once (Triton); the largest batch if none, or none that it can have."""
    allowed: tuple[int, ...] | tuple[tuple[int, ...], ...] = ()
    """Sizes that batches are padded to (TF Serving), the last one the largest batch; every size if none."""
    instances: int | tuple[int, ...] = 0
    """Batches of a session that may execute at once; 0: as many as there are accelerators."""
    max_enqueued: int | tuple[int, ...] = 0
    """Requests that may wait, beyond which new ones are refused (Triton's max_queue_size); 0: no limit."""
    max_enqueued_batches: int | tuple[int, ...] = 0
    """The same in batches of the largest size (TF Serving); 0: no limit."""
    drop_expired: bool = False
    """Whether requests that still wait at their deadline are dropped then."""

    def __post_init__(self) -> None:
        for name in ("max_batch", "instances", "max_enqueued", "max_enqueued_batches"):
            for value in _values(getattr(self, name)):
                if not isinstance(value, Integral) or value < 0:
                    raise InvalidInput(name, f"{value} is not a count", "use 0 or a positive whole number")
        for value in _values(self.delay):
            if not 0 <= value < math.inf:
                raise InvalidInput("delay", f"{value} is negative or not finite", "use seconds, at least 0")
        for name in ("preferred", "allowed"):
            for sizes in _size_lists(getattr(self, name)):
                if any(later <= earlier for earlier, later in zip((0, *sizes), sizes, strict=False)):
                    raise InvalidInput(
                        name, f"{list(sizes)} must be positive and increase", "write it like 4, 8"
                    )


class Timeout(NamedTuple):
    """The state; all arrays are modified in place, ``preferred`` excepted."""

    cluster: Cluster
    rules: np.ndarray  # (M,) RULE
    preferred: np.ndarray  # (M, B+1) by waiting requests: the largest preferred size they fill, 0 if none
    eligible: np.ndarray  # tree over sessions: arrival of the oldest request if a batch may go, s
    timers: np.ndarray  # tree over sessions: when the oldest request will have waited for the delay, s
    deadlines: np.ndarray  # tree over sessions: deadline of the oldest request if it is dropped then, s
    idle: np.ndarray  # tree over accelerators: its number if idle
    serves: np.ndarray  # (N,) session whose batch it executes, -1 if that is not known


def build(spec: ClusterSpec, options: TimeoutOptions | None = None) -> Timeout:
    """Return the state at time 0.

    Raises:
        InvalidInput: The options do not fit the sessions.
    """
    options = options or TimeoutOptions()
    count, accelerators = len(spec.sessions), len(spec.kinds)
    rules = records(count, RULE)
    rules["delay"] = _each("delay", options.delay, count)
    instances = np.array(_each("instances", options.instances, count))
    rules["instances"] = np.where(instances > 0, instances, accelerators)
    rules["expires"] = options.drop_expired
    allowed = _each_list("allowed", options.allowed, count)
    largest = _largest(spec, options, allowed)
    rules["capacity"] = _capacity(options, largest)
    limited = bool((rules["capacity"] < UNLIMITED).any())
    queues = [(session, -1) for session in range(count)] * (2 if limited else 1)
    cluster = build_cluster(spec, queues=queues)
    cluster.sessions["largest"] = largest
    idle = tree_of(np.where(cluster.accelerators["outstanding"], np.inf, np.arange(accelerators)))
    trees = make_tree(count), make_tree(count), make_tree(count)
    preferred = _preferred(options, largest)
    policy = Timeout(cluster, rules, preferred, *trees, idle, np.full(accelerators, -1))
    derive(policy, options)
    return policy


def derive(policy: Timeout, options: TimeoutOptions | None = None) -> None:
    """Pad the batches, and find again when what waits is due, for the profiles or delays have changed.

    A batch takes as long as the cluster assumes for the next allowed size.

    Args:
        policy: Modified in place.
        options: Those that it was built with.
    """
    cluster = policy.cluster
    allowed = _each_list("allowed", (options or TimeoutOptions()).allowed, cluster.sessions.size)
    for session, sizes in enumerate(allowed):
        if sizes:
            largest = cluster.sessions[session].largest
            padded = np.arange(cluster.latency.shape[2])
            padded[1 : largest + 1] = np.array(sizes)[np.searchsorted(sizes, padded[1 : largest + 1])]
            cluster.latency[:, session] = cluster.latency[:, session, padded]
    # Only what waits: before `arrive` has compiled it, `_requeue` would be compiled to slower code here.
    queues, board = cluster.queues, cluster.board[0]
    for session in np.flatnonzero(queues["tail"] > queues["head"]).tolist():
        _requeue(policy, session, board.now)
    board.wake_at = min(board.wake_at, policy.deadlines.min())


def _largest(spec: ClusterSpec, options: TimeoutOptions, allowed: Sequence[Sequence[int]]) -> list[int]:
    """Return the largest batch per session."""
    largest = []
    for session, limit, sizes in zip(
        spec.sessions, _each("max_batch", options.max_batch, len(allowed)), allowed, strict=True
    ):
        rows = session.latency.shape[1] - 1
        if sizes and sizes[-1] != (limit or sizes[-1]):
            raise InvalidInput("allowed", f"the last of {list(sizes)} is not max_batch {limit}", "make it so")
        if sizes and sizes[-1] > rows:
            problem = f"the profile of {session.name} ends at batches of {rows}, {sizes[-1]} is unknown"
            raise InvalidInput("allowed", problem, "measure it, or leave it out")
        largest.append(min(rows, limit or (sizes[-1] if sizes else rows)))
    return largest


def _preferred(options: TimeoutOptions, largest: Sequence[int]) -> np.ndarray:
    """Return the largest preferred size by session and number of waiting requests.   # (M, B+1)."""
    table = np.zeros((len(largest), max(largest) + 1), np.int64)
    limits = _each("max_batch", options.max_batch, len(largest))
    for index, sizes in enumerate(_each_list("preferred", options.preferred, len(largest))):
        if sizes and limits[index] and sizes[-1] > limits[index]:
            problem = f"{sizes[-1]} is more than max_batch {limits[index]}"
            raise InvalidInput("preferred", problem, "leave it out or raise max_batch")
        fitting = [size for size in sizes if size <= largest[index]]
        for size in fitting or (largest[index],):
            table[index, size:] = size
    return table


def _capacity(options: TimeoutOptions, largest: Sequence[int]) -> list[int]:
    """Return requests that may wait, per session."""
    requests = _each("max_enqueued", options.max_enqueued, len(largest))
    batches = _each("max_enqueued_batches", options.max_enqueued_batches, len(largest))
    by_batches = [count * size for count, size in zip(batches, largest, strict=True)]
    return [min(a or UNLIMITED, b or UNLIMITED) for a, b in zip(requests, by_batches, strict=True)]


def _values(option: Any) -> tuple[Any, ...]:
    return tuple(option) if isinstance(option, Sequence) else (option,)


def _size_lists(option: Any) -> tuple[tuple[int, ...], ...]:
    """Return the lists of sizes in an option that holds one, or one per session."""
    if option and isinstance(option[0], Sequence):
        return tuple(tuple(sizes) for sizes in option)
    return (tuple(option),)


def _each(name: str, option: Any, count: int) -> list[Any]:
    """Return one value per session."""
    return _spread(name, _values(option), count, isinstance(option, Sequence))


def _each_list(name: str, option: Any, count: int) -> list[tuple[int, ...]]:
    """Return one list of sizes per session."""
    return _spread(name, _size_lists(option), count, bool(option) and isinstance(option[0], Sequence))


def _spread(name: str, values: tuple[Any, ...], count: int, per_session: bool) -> list[Any]:
    if per_session and len(values) != count:
        problem = f"{len(values)} values for {count} sessions"
        raise InvalidInput(name, problem, "give one for all, or one per session")
    return list(values) if per_session else list(values) * count


@njit_flat
def arrive(policy: Timeout, session: int, source: int, number: int, now: float) -> int:  # noqa: ARG001
    """See :func:`tuner.scheduling.policy.arrive`."""
    cluster = policy.cluster
    begin(cluster, now)
    if waiting(cluster, session) >= policy.rules[session].capacity:
        refusals = cluster.sessions.size + session
        push(cluster, refusals, number, now)  # always empty before
        drop(cluster, refusals, 1)
        return OK
    status = push(cluster, session, number, now)
    if status != OK:
        return int(status)
    _requeue(policy, session, now)
    _assign(policy, now)
    return OK


@njit_flat
def finish(policy: Timeout, accelerator: int, now: float) -> int:
    """See :func:`tuner.scheduling.policy.finish`."""
    begin(policy.cluster, now)
    policy.cluster.accelerators[accelerator].outstanding -= 1
    set_key(policy.idle, accelerator, float(accelerator))
    session = policy.serves[accelerator]
    if session >= 0:
        policy.rules[session].running -= 1
        _requeue(policy, session, now)
    _assign(policy, now)
    return OK


@njit_flat
def wake(policy: Timeout, now: float) -> int:
    """See :func:`tuner.scheduling.policy.wake`: a delay or a deadline has passed, or room was lacking."""
    begin(policy.cluster, now)
    _assign(policy, now)
    return OK


@njit_flat
def _assign(policy: Timeout, now: float) -> None:
    """Drop what has expired, then give batches to idle accelerators while there are both."""
    cluster = policy.cluster
    _expire(policy, now)
    while least_key(policy.timers) <= now:
        _requeue(policy, least_index(policy.timers), now)
    while least_key(policy.idle) < np.inf and least_key(policy.eligible) < np.inf and has_room(cluster):
        accelerator = least_index(policy.idle)
        session = least_index(policy.eligible)
        size = _batch(policy, session, now)
        dispatch(
            cluster,
            session,
            size,
            accelerator,
            now + cluster.board[0].d_control + cluster.board[0].d_data * size,
        )
        set_key(policy.idle, accelerator, np.inf)
        policy.serves[accelerator] = session
        policy.rules[session].running += 1
        _requeue(policy, session, now)
    timer = least_key(policy.timers) if least_key(policy.idle) < np.inf else np.inf
    cluster.board[0].wake_at = min(timer, least_key(policy.deadlines)) if has_room(cluster) else now


@njit_flat
def _expire(policy: Timeout, now: float) -> None:
    """Drop the requests whose deadline has come, in sessions that want it."""
    cluster = policy.cluster
    while least_key(policy.deadlines) <= now and has_room(cluster):
        session = least_index(policy.deadlines)
        late = overdue(cluster, session, now)
        if late:  # the budget may have grown
            drop(cluster, session, late)
        _requeue(policy, session, now)


@njit_flat
def _batch(policy: Timeout, session: int, now: float) -> int:
    """Return how many requests of an eligible session go now."""
    count = min(waiting(policy.cluster, session), policy.cluster.sessions[session].largest)
    preferred = policy.preferred[session, count]
    waited = policy.rules[session].delay > 0 and _ripe(policy, session) <= now
    return int(count if waited or not preferred else preferred)


@njit_flat
def _ripe(policy: Timeout, session: int) -> float:
    """Return when the oldest waiting request of a session will have waited for the delay, s."""
    oldest = arrival_of(policy.cluster, session, policy.cluster.queues[session].head)
    return float(oldest + policy.rules[session].delay)


@njit_flat
def _requeue(policy: Timeout, session: int, now: float) -> None:
    """Note from when on the session may send a batch, and when its oldest request expires."""
    cluster, rule = policy.cluster, policy.rules[session]
    eligible = timer = expiry = np.inf
    count = min(waiting(cluster, session), cluster.sessions[session].largest)
    if count and rule.expires:
        expiry = deadline(cluster, session, cluster.queues[session].head)
    if count and rule.running < rule.instances:
        if policy.preferred[session, count] or _ripe(policy, session) <= now:
            eligible = arrival_of(cluster, session, cluster.queues[session].head)
        else:
            timer = _ripe(policy, session)
    set_key(policy.eligible, session, eligible)
    set_key(policy.timers, session, timer)
    set_key(policy.deadlines, session, expiry)


register(Timeout, Functions(arrive, finish, wake))
