"""Which Nexus backend hosts which sessions, with which batch and share: simple squishy bin packing.

Nexus, sections 4.1 and 6.1 and Algorithm 1. Sessions that fill whole accelerators get them (ScheduleSaturate,
largest batch with ``2 l(b) <= SLO``); what is left of each is given the largest batch with
``b / r + l(b) <= SLO``, and these residues are merged, the fullest first, into the node that they fill best
(ScheduleResidue): the shorter duty cycle holds for both, and all batches of a cycle have to fit into it.

Where we differ: the number of accelerators is given. We therefore plan for the rates times the largest
factor at which they fit, so that the room is shared in proportion, and overload is, too. An accelerator
that is left over repeats the fullest node, which halves its shares. Batch sizes are whole numbers, rounded
up, and the SLO is checked again with them. Plans leave room for the network in the SLO. At last each batch
is raised as far as its session's SLO allows, network or not, while the others keep theirs, so that a turn
can make up for what gathered in a burst; deadlines are kept by dropping. Unlike accelerators are planned
kind by kind, each with its part of the rates. A session that fits nowhere makes its kind host every session
on every accelerator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tuner.errors import InvalidInput
from tuner.scheduling.analysis import best_batch
from tuner.scheduling.cluster import ClusterSpec

__all__ = ["Hosted", "Placement", "check_placement", "make_placement"]

EVERYWHERE = 1 << 14
"""Queues that a plan without rates may have, every session everywhere; beyond it equal rates are assumed."""
ROUNDING = 1e-9
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


def make_placement(spec: ClusterSpec, rates: Sequence[float] | None = None) -> Placement:
    """Return where to place the sessions.

    Args:
        spec: Sessions and accelerators.
        rates: requests/s per session; if None every session is placed on every accelerator, each with the
            batch that it would have alone. With one session that is the plan for any rate.

    Raises:
        InvalidInput: There is not one rate per session, or one is negative.
    """
    if rates is not None:
        _check_rates(spec, rates)
    if rates is None and len(spec.sessions) * len(spec.kinds) > EVERYWHERE:
        rates = [1.0] * len(spec.sessions)
    kinds = sorted(set(spec.kinds))
    models = [_models(spec, kind) for kind in kinds]
    if rates is None or len(spec.sessions) == 1:
        rows = {
            kind: _everywhere(each, [model.peak for model in each], spec.kinds.count(kind))
            for kind, each in zip(kinds, models, strict=True)
        }
    else:
        parts = _split(models, rates, [spec.kinds.count(kind) for kind in kinds])
        rows = {
            kind: _fill(each, part, spec.kinds.count(kind))
            for kind, each, part in zip(kinds, models, parts, strict=True)
        }
    return Placement.of(rows[kind].pop(0) for kind in spec.kinds)


def _check_rates(spec: ClusterSpec, rates: Sequence[float]) -> None:
    if len(rates) != len(spec.sessions):
        problem = f"{len(rates)} rates for {len(spec.sessions)} sessions"
        raise InvalidInput("rates", problem, "give one per session")
    for rate in rates:
        if not 0 <= rate < math.inf:
            raise InvalidInput("rates", f"{rate} is negative or not finite", "use requests per second")


class _Model(NamedTuple):
    """One session on one kind of accelerator."""

    latency: np.ndarray  # (B+1,) s
    slo: float  # s
    budget: float  # s for waiting and execution, without the network
    batch: int  # largest with 2 l(b) <= budget, at least 1
    peak: float  # requests/s of an accelerator of its own


def _models(spec: ClusterSpec, kind: int) -> list[_Model]:
    models = []
    for session in spec.sessions:
        latency = session.latency[kind]
        budget = session.slo - spec.delays.response - spec.delays.control - spec.delays.data
        batch = max(best_batch(latency, budget / 2), 1)
        models.append(_Model(latency, session.slo, budget, batch, batch / float(latency[batch])))
    return models


def _split(models: list[list[_Model]], rates: Sequence[float], counts: list[int]) -> list[list[float]]:
    """Each kind's part of the rates, in proportion to what it could do.   # kinds x sessions."""
    capacity = np.array(
        [[model.peak * count for model in row] for row, count in zip(models, counts, strict=True)]
    )
    parts: list[list[float]] = (np.asarray(rates, float) * capacity / capacity.sum(axis=0)).tolist()
    return parts


def _everywhere(models: list[_Model], rates: Sequence[float], count: int) -> list[list[Hosted]]:
    row = [
        Hosted(index, max(best_batch(model.latency, model.slo / 2), 1), rates[index])
        for index, model in enumerate(models)
    ]
    return [row] * count


def _fill(models: list[_Model], rates: Sequence[float], count: int) -> list[list[Hosted]]:
    """Place the rates times the largest factor at which they fit; rows of all accelerators of the kind."""
    load = sum(rate / model.peak for rate, model in zip(rates, models, strict=True))
    if load == 0:
        return _fill(models, [1.0] * len(models), count)
    high = count / load
    best = _pack(models, [rate * high for rate in rates], count)
    low = high
    while best is None and low > high * ROUNDING:
        low /= 2
        best = _pack(models, [rate * low for rate in rates], count)
    if best is None:
        return _everywhere(models, [max(rate, ROUNDING) / count for rate in rates], count)
    step = low
    for _ in range(STEPS if low < high else 0):
        step /= 2
        nodes = _pack(models, [rate * (low + step) for rate in rates], count)
        if nodes is not None:
            best, low = nodes, low + step
    return _repeat(models, best, count)


class _Node(NamedTuple):
    """What one accelerator is planned to do."""

    cycle: float  # s
    loads: tuple[tuple[int, float], ...]  # (session, requests/s)
    batches: tuple[int, ...]
    occupancy: float  # part of the cycle
    least: float  # part of the cycle with the best batches


def _pack(models: list[_Model], rates: Sequence[float], count: int) -> list[_Node] | None:
    """Return the nodes that serve the rates, or None if there are more than ``count``."""
    nodes: list[_Node] = []
    residues: list[_Node] = []
    for index, (model, rate) in enumerate(zip(models, rates, strict=True)):  # Alg. 1, ScheduleSaturate
        whole = int(rate / model.peak + ROUNDING)
        if len(nodes) + whole > count:
            return None
        cycle = float(model.latency[model.batch])
        nodes += [_Node(cycle, ((index, model.peak),), (model.batch,), 1.0, 1.0)] * whole
        left = rate - whole * model.peak
        if whole == 0 or left > ROUNDING * rate:
            residues.append(_residue(model, index, left))
    residues.sort(key=lambda node: -node.occupancy)
    merged: list[_Node] = []
    for residue in residues:  # Alg. 1, ScheduleResidue
        if not _place(models, merged, residue) and len(nodes) + len(merged) > count:
            return None
    return nodes + merged


def _residue(model: _Model, index: int, rate: float) -> _Node:
    """Return the largest batch and duty cycle of a residue by itself, equation (2)."""
    sizes = np.arange(1, len(model.latency))
    fits = sizes[sizes + rate * model.latency[1:] <= rate * model.budget * (1 + ROUNDING)]
    if len(fits):
        batch, cycle = int(fits[-1]), int(fits[-1]) / rate
    else:  # requests too rare to wait for each other
        batch, cycle = 1, max(model.budget - float(model.latency[1]), float(model.latency[1]))
    return _Node(cycle, ((index, rate),), (batch,), float(model.latency[batch]) / cycle, rate / model.peak)


def _place(models: list[_Model], nodes: list[_Node], residue: _Node) -> bool:
    """Merge a residue into the node that it fills best, or append it; ``nodes`` is modified in place."""
    best, where = None, -1
    for index, node in enumerate(nodes):
        if node.least + residue.least <= 1 + ROUNDING:
            both = _merge(models, node, residue)
            if both is not None and (best is None or both.occupancy > best.occupancy):
                best, where = both, index
    if best is None:
        nodes.append(residue)
        return False
    nodes[where] = best
    return True


def _merge(models: list[_Model], node: _Node, residue: _Node) -> _Node | None:
    """Both in the shorter of the two duty cycles (figure 7), or None if they do not fit into it."""
    cycle = min(node.cycle, residue.cycle)
    loads = node.loads + residue.loads
    batches = tuple(max(math.ceil(cycle * rate - ROUNDING), 1) for _, rate in loads)
    latency = [float(models[index].latency[size]) for (index, _), size in zip(loads, batches, strict=True)]
    if sum(latency) > cycle * (1 + ROUNDING):
        return None
    if any(
        cycle + each > models[index].budget + ROUNDING
        for (index, _), each in zip(loads, latency, strict=True)
    ):
        return None
    return _Node(cycle, loads, batches, sum(latency) / cycle, node.least + residue.least)


def _repeat(models: list[_Model], nodes: list[_Node], count: int) -> list[list[Hosted]]:
    """Return rows of shares; accelerators left over repeat the fullest nodes."""
    copies = [1] * len(nodes)
    for _ in range(count - len(nodes)):
        fullest = max(range(len(nodes)), key=lambda index: nodes[index].occupancy / copies[index])
        copies[fullest] += 1
    rows = []
    for node, times in zip(nodes, copies, strict=True):
        pairs = zip(node.loads, _raised(models, node), strict=True)
        rows += [[Hosted(index, size, max(rate, ROUNDING) / times) for (index, rate), size in pairs]] * times
    return rows


def _raised(models: list[_Model], node: _Node) -> list[int]:
    """Per session the largest batch that its own SLO allows, if the others keep theirs."""
    planned = [
        float(models[index].latency[size]) for (index, _), size in zip(node.loads, node.batches, strict=True)
    ]
    sizes = []
    for (index, _), size, latency in zip(node.loads, node.batches, planned, strict=True):
        left = models[index].slo - (sum(planned) - latency)  # for waiting and execution of its own batches
        sizes.append(max(size, best_batch(models[index].latency, left / 2)))
    return sizes
