"""Which Nexus backend hosts which sessions, with which batch and share, on a given number of accelerators.

Nexus, sections 4.1 and 6.1. The packing itself is :mod:`tuner.planning.packing.squishy`; here the number of
accelerators is given. We therefore plan for the rates times the largest factor at which they fit, so that
the room is shared in proportion, and overload is, too. An accelerator that is left over repeats the fullest
node, which halves its shares. Plans leave room for the network in the SLO. At last each batch is raised as
far as its session's SLO allows, network or not, while the others keep theirs, so that a turn can make up for
what gathered in a burst; deadlines are kept by dropping. Unlike accelerators are planned kind by kind, each
with its part of the rates: none of a session of which it can serve no batch, if another kind can. A session
that fits nowhere makes every kind host all sessions that it has a part of on every accelerator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tuner.errors import InvalidInput
from tuner.planning.packing.load import LoadArrays, SessionLoad, load_arrays
from tuner.planning.packing.squishy import PackedNode, pack_arrays
from tuner.profile import best_batch
from tuner.rounding import ROUNDING
from tuner.scheduling.cluster import ClusterSpec, SessionSpec

__all__ = [
    "Hosted",
    "Placement",
    "check_placement",
    "loads_of",
    "make_placement",
    "raised_batches",
    "uncapped",
]

EVERYWHERE = 1 << 14
"""Queues that a plan without rates may have, every session everywhere; beyond it equal rates are assumed."""
STEPS = 10
"""Halvings of the interval in which the largest factor lies."""


class Hosted(NamedTuple):
    """One session on one backend."""

    session: int
    batch: int  # planned size, the most that one turn takes
    rate: float  # requests/s planned; frontends dispatch in this proportion


@dataclass(frozen=True, slots=True)
class Placement:
    """Per accelerator the sessions that it hosts, in the order of their turns.

    ``Placement([[(0, 8, 1.0)], [(0, 8, 0.5), (1, 4, 1.0)]])`` is as good as the same with tuples and shares.
    """

    backends: tuple[tuple[Hosted, ...], ...]

    def __post_init__(self) -> None:
        rows = tuple(tuple(Hosted(*share) for share in row) for row in self.backends)
        object.__setattr__(self, "backends", rows)

    @classmethod
    def of(cls, rows: Iterable[Iterable[tuple[int, int, float]]]) -> Placement:
        """Return the plan written as nested lists of (session, batch, rate)."""
        return cls(tuple(tuple(Hosted(*share) for share in row) for row in rows))


def uncapped(plan: Placement, spec: ClusterSpec) -> Placement:
    """Return the plan with the largest batches that the sessions can have, in place of the planned ones."""
    largest = [session.latency.shape[1] - 1 for session in spec.sessions]
    return Placement(
        tuple(tuple(share._replace(batch=largest[share.session]) for share in row) for row in plan.backends)
    )


def check_placement(plan: Placement, spec: ClusterSpec) -> None:
    """Raise InvalidInput if a plan does not fit a cluster."""
    if len(plan.backends) != len(spec.kinds):
        problem = f"{len(plan.backends)} backends for {len(spec.kinds)} accelerators"
        raise InvalidInput("placement", problem, "give one list per accelerator")
    for accelerator, row in enumerate(plan.backends):
        if len({share.session for share in row}) != len(row):
            raise InvalidInput("placement", f"a session is twice on accelerator {accelerator}", "merge them")
        for share in row:
            _check_share(share, spec, accelerator)


def _check_share(share: Hosted, spec: ClusterSpec, accelerator: int) -> None:
    if not 0 <= share.session < len(spec.sessions):
        problem = f"there is no session {share.session} (accelerator {accelerator})"
        raise InvalidInput("placement", problem, f"use 0..{len(spec.sessions) - 1}")
    largest = spec.sessions[share.session].latency.shape[1] - 1
    if not 1 <= share.batch <= largest:
        problem = f"a batch of {share.batch} (accelerator {accelerator}, session {share.session})"
        raise InvalidInput("placement", problem, f"use 1..{largest}")
    if not 0 < share.rate < math.inf:
        problem = f"a share of {share.rate} (accelerator {accelerator}, session {share.session})"
        raise InvalidInput("placement", problem, "use a positive number, or leave the session out")


def make_placement(
    spec: ClusterSpec, rates: Sequence[float] | None = None, *, bursts: float = 0.0
) -> Placement:
    """Return where to place the sessions.

    Args:
        spec: Sessions and accelerators.
        rates: requests/s per session; if None every session is placed on every accelerator, each with the
            batch that it would have alone. With one session that is the plan for any rate. A session with a
            rate of 0 is placed nowhere, unless all have it.
        bursts: Standard deviations of a session's requests in half of its time, for which it has room.

    Raises:
        InvalidInput: There is not one rate per session, or one is negative.
    """
    if rates is not None:
        _check_rates(spec, rates)
    if rates is None and len(spec.sessions) * len(spec.kinds) > EVERYWHERE:
        rates = [1.0] * len(spec.sessions)
    kinds = sorted(set(spec.kinds))
    peaks = _peaks(spec, kinds)
    counts = [spec.kinds.count(kind) for kind in kinds]
    if rates is None or len(spec.sessions) == 1:
        each = zip(kinds, peaks, counts, strict=True)
        rows = {kind: _everywhere(spec, kind, own, count) for kind, own, count in each}
    else:
        asked = [index for index, rate in enumerate(rates) if rate] or range(len(rates))
        own = [[index for index in asked if row[index]] for row in peaks]
        parts = zip(kinds, own, _split(peaks, rates, counts), counts, strict=True)
        rows = {
            kind: _host(spec, kind, hosted, part, count=count, bursts=bursts)
            for kind, hosted, part, count in parts
        }
    return Placement.of(rows[kind].pop(0) for kind in spec.kinds)


def _check_rates(spec: ClusterSpec, rates: Sequence[float]) -> None:
    if len(rates) != len(spec.sessions):
        problem = f"{len(rates)} rates for {len(spec.sessions)} sessions"
        raise InvalidInput("rates", problem, "give one per session")
    for rate in rates:
        if not 0 <= rate < math.inf:
            raise InvalidInput("rates", f"{rate} is negative or not finite", "use requests per second")


def loads_of(spec: ClusterSpec, kind: int) -> list[SessionLoad]:
    """Return the sessions on one kind of accelerator; their budgets leave room for the network."""
    network = spec.delays.response + spec.delays.control + spec.delays.data
    return [
        SessionLoad(
            name=session.name,
            latency=session.latency[kind],
            budget=max(session.slo - network, 0.0),
            rate=0.0,
        )
        for session in spec.sessions
    ]


def _peaks(spec: ClusterSpec, kinds: Sequence[int]) -> list[list[float]]:
    """Return what an accelerator of each kind could do of each session, requests/s.   # kinds x sessions.

    That is 0 if no batch is in time there, but one is on another kind.
    """
    loads = [loads_of(spec, kind) for kind in kinds]
    peaks = [[load.peak for load in row] for row in loads]
    served = [any(each) for each in zip(*peaks, strict=True)]  # by session
    return [
        [peak if somewhere else _peak(load) for peak, load, somewhere in zip(*each, served, strict=True)]
        for each in zip(peaks, loads, strict=True)
    ]


def _peak(load: SessionLoad) -> float:
    """Return the requests/s of an accelerator of its own; with batches of 1 if none is in time."""
    return load.peak or 1 / float(load.latency[1])


def _split(peaks: list[list[float]], rates: Sequence[float], counts: list[int]) -> list[list[float]]:
    """Each kind's part of the rates, in proportion to what it could do.   # kinds x sessions."""
    capacity = np.array([[peak * count for peak in row] for row, count in zip(peaks, counts, strict=True)])
    parts: list[list[float]] = (np.asarray(rates, float) * capacity / capacity.sum(axis=0)).tolist()
    return parts


def _everywhere(spec: ClusterSpec, kind: int, rates: Sequence[float], count: int) -> list[list[Hosted]]:
    row = [
        Hosted(index, max(best_batch(session.latency[kind], session.slo / 2), 1), rates[index])
        for index, session in enumerate(spec.sessions)
        if rates[index]
    ]
    return [row] * count


def _host(
    spec: ClusterSpec, kind: int, own: Sequence[int], rates: Sequence[float], *, count: int, bursts: float
) -> list[list[Hosted]]:
    """Place a kind's own sessions; rows of all its accelerators, empty if there are none."""
    if not own:
        return [[] for _ in range(count)]
    only = replace(spec, sessions=[spec.sessions[index] for index in own])
    rows = _fill(only, kind, [rates[index] for index in own], count, bursts)
    return [[share._replace(session=own[share.session]) for share in row] for row in rows]


def _fill(
    spec: ClusterSpec, kind: int, rates: Sequence[float], count: int, bursts: float
) -> list[list[Hosted]]:
    """Place the rates times the largest factor at which they fit; rows of all accelerators of the kind."""
    loads = loads_of(spec, kind)
    load = sum(rate / _peak(each) for rate, each in zip(rates, loads, strict=True))
    if load == 0:
        return _fill(spec, kind, [1.0] * len(loads), count, bursts)
    arrays, high = load_arrays(loads), count / load
    best = _pack(arrays, rates, high, count, bursts)
    low = high
    while best is None and low > high * ROUNDING:
        low /= 2
        best = _pack(arrays, rates, low, count, bursts)
    if best is None:
        return _everywhere(spec, kind, [max(rate, ROUNDING) / count for rate in rates], count)
    step = low
    for _ in range(STEPS if low < high else 0):
        step /= 2
        nodes = _pack(arrays, rates, low + step, count, bursts)
        if nodes is not None:
            best, low = nodes, low + step
    return _repeat(spec.sessions, kind, best, count)


def _pack(
    loads: LoadArrays, rates: Sequence[float], factor: float, count: int, bursts: float
) -> list[PackedNode] | None:
    """Return the nodes that serve the rates times a factor, or None if there are more than ``count``."""
    rate = np.array([rate * factor for rate in rates])
    if bursts:
        rate += bursts * np.sqrt(rate / np.maximum(loads.budget / 2, ROUNDING))
    return pack_arrays(loads._replace(rate=rate), limit=count)


def _repeat(
    sessions: Sequence[SessionSpec], kind: int, nodes: list[PackedNode], count: int
) -> list[list[Hosted]]:
    """Return rows of shares; accelerators left over repeat the fullest nodes."""
    copies = [1] * len(nodes)
    for _ in range(count - len(nodes)):
        fullest = max(range(len(nodes)), key=lambda index: nodes[index].occupancy / copies[index])
        copies[fullest] += 1
    rows = []
    for node, times in zip(nodes, copies, strict=True):
        members = [(index, size) for (index, _), size in zip(node.loads, node.batches, strict=True)]
        pairs = zip(node.loads, raised_batches(sessions, kind, members), strict=True)
        rows += [[Hosted(index, size, max(rate, ROUNDING) / times) for (index, rate), size in pairs]] * times
    return rows


def raised_batches(
    sessions: Sequence[SessionSpec], kind: int, members: Sequence[tuple[int, int]]
) -> list[int]:
    """Return the largest batch that each session's own SLO allows, if the others keep theirs.

    Args:
        sessions: All sessions of the cluster.
        kind: The kind of the accelerator.
        members: (session, planned batch) of each session on it.
    """
    planned = [float(sessions[index].latency[kind, size]) for index, size in members]
    sizes = []
    for (index, size), latency in zip(members, planned, strict=True):
        left = sessions[index].slo - (sum(planned) - latency)  # for waiting and execution of its own batches
        sizes.append(max(size, best_batch(sessions[index].latency[kind], left / 2)))
    return sizes
