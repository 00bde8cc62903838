"""Plans an epoch: packs the loads onto backends, and moves few models away from the epoch before.

Nexus, section 6.1, last paragraph. A backend keeps what it hosts, at the new rates. One that is overloaded
by them loses its cheapest sessions until it is not; what was evicted, what is new and what a session grew by
are packed again, first into backends that host the session already. If the load fell, the least occupied
backends give their sessions to others and are released. Rates of 0 leave.

Where we differ: a session that falls below the whole backends that it had keeps less on one of them, unless
the others hold the rest in what it had there. If something is left unserved, the least occupied backends are
released for it, too; if that is not enough, all is packed afresh, and the new nodes take the backends that
host most of their models. Backends of several kinds or memories are filled group by group, the smallest
memory first, and within it the fastest kind first; the rest of a session goes on to the next group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from tuner.planning.packing.consolidation import consolidate
from tuner.planning.packing.filling import (
    Bin,
    Filling,
    Packing,
    has_fallen,
    keep_hosted,
    pack_afresh,
    place_rest,
    release,
)
from tuner.planning.packing.load import SessionLoad, load_arrays
from tuner.planning.packing.plan import Backend, ClusterPlan, PlannedBackend, PlannedSession, Unserved
from tuner.rounding import ROUNDING

__all__ = ["LoadOfKind", "plan_epoch"]

LoadOfKind = Callable[[str], Sequence[SessionLoad | None]]
"""The sessions on a kind of backends, always in one order; None for those that cannot execute there."""


def plan_epoch(
    loads_of: LoadOfKind,
    backends: Sequence[Backend] | None,
    *,
    memory: float = math.inf,
    previous: ClusterPlan | None = None,
    packing: Packing = consolidate,
    spill: float = 1.0,
) -> ClusterPlan:
    """Return the plan of an epoch.

    Args:
        loads_of: The sessions on a kind of backends.
        backends: The backends to be used; None for as many equal ones of the default kind as are needed.
        memory: Bytes of each backend, if ``backends`` is None.
        previous: The plan of the epoch before.
        packing: How empty backends are filled.
        spill: Part of its duty cycle up to which a backend of the epoch before may execute before it loses
            sessions; more than 1 where the rates have a margin, so that few models move.
    """
    if previous is not None and not previous.backends:
        previous = None
    given = (
        list(backends) if backends is not None else _enough_backends(loads_of("default"), memory, previous)
    )
    groups = _groups(loads_of, given)
    rates = _rates(loads_of, given)
    bins, left = _fill(groups, rates, previous, packing, spill)
    enough = ROUNDING * sum(rates.values())
    if previous is not None and sum(left) > enough:
        tight, tight_left = _fill(groups, rates, previous, packing, spill, tight=True)
        if sum(tight_left) < sum(left) - ROUNDING:
            bins, left = tight, tight_left
    if previous is not None and sum(left) > enough:
        fresh, fresh_left = _fill(groups, rates, None, packing, spill)
        if sum(fresh_left) < sum(left) - ROUNDING:
            bins, left = _assign_backends(groups, fresh, previous), fresh_left
    planned = _planned_backends(groups, bins, given)
    return ClusterPlan(
        backends=planned,
        load=_load(groups, planned, list(rates)),
        unserved=tuple(
            _unserved(groups, index, name, rest)
            for index, (name, rest) in enumerate(zip(rates, left, strict=True))
            if rest > 0
        ),
        loaded=_count_loaded(planned, previous),
    )


def _enough_backends(
    loads: Sequence[SessionLoad | None], memory: float, previous: ClusterPlan | None
) -> list[Backend]:
    """Return more equal backends than the loads can need, those of the epoch before first."""
    most = sum(2 + int(load.rate / load.peak) for load in loads if load is not None and load.fits)
    names = [backend.name for backend in previous.backends] if previous is not None else []
    known = set(names)
    new = (name for index in count() if (name := f"backend-{index}") not in known)
    return [Backend(name=name, memory=memory) for name in [*names, *islice(new, most + 1)]]


@dataclass(frozen=True)
class _Group:
    """Equal backends."""

    loads: Sequence[SessionLoad | None]
    usable: list[bool]
    backends: list[Backend]

    def load(self, index: int) -> SessionLoad:
        """Return a load that is known to execute on these backends."""
        found = self.loads[index]
        assert found is not None, f"load {index} cannot execute here"
        return found


def _groups(loads_of: LoadOfKind, backends: Sequence[Backend]) -> list[_Group]:
    groups: dict[tuple[float, str], list[Backend]] = {}
    for backend in backends:
        groups.setdefault((backend.memory, backend.kind), []).append(backend)
    speed = {kind: sum(load.peak for load in loads_of(kind) if load) for _, kind in groups}
    made = []
    for (memory, kind), equal in sorted(groups.items(), key=lambda item: (item[0][0], -speed[item[0][1]])):
        loads = loads_of(kind)
        usable = [load is not None and load.fits and load.memory <= memory for load in loads]
        made.append(_Group(loads, usable, equal))
    return made


def _rates(loads_of: LoadOfKind, backends: Sequence[Backend]) -> dict[str, float]:
    """Return the rate of each session by its name, in the order of the loads."""
    rates: dict[str, float] = {}
    kinds = list(dict.fromkeys(backend.kind for backend in backends))
    for row in zip(*(loads_of(kind) for kind in kinds), strict=True):
        load = next(load for load in row if load is not None)
        rates[load.name] = load.rate
    return rates


def _fill(
    groups: Sequence[_Group],
    rates: dict[str, float],
    previous: ClusterPlan | None,
    packing: Packing,
    spill: float,
    *,
    tight: bool = False,
) -> tuple[list[Bin], list[float]]:
    """Return the filled backends of all groups, and the rates that are left.

    If ``tight``, backends are released for what has no place, too, and not only where the load fell.
    """
    left, bins = list(rates.values()), []
    for group in groups:
        loads = [
            load if load is not None else _nothing(name)
            for load, name in zip(group.loads, rates, strict=True)
        ]
        own = [rate if fits else 0.0 for rate, fits in zip(left, group.usable, strict=True)]
        others = [other for other in groups if other is not group]
        nowhere_else = [not any(other.usable[index] for other in others) for index in range(len(own))]
        filling = Filling(loads, load_arrays(loads), own, nowhere_else, spill)
        if previous is None:
            pack_afresh(filling, group.backends, packing)
        else:
            keep_hosted(filling, group.backends, previous)
            place_rest(filling, group.backends)
            if tight:
                release(filling, group.backends)
            if has_fallen(filling, group.backends, previous):
                release(filling)
        bins += filling.bins
        left = [
            rest if fits else rate for rest, rate, fits in zip(filling.left, left, group.usable, strict=True)
        ]
    return bins, left


def _nothing(name: str) -> SessionLoad:
    """Return what stands, with a rate of 0, for a session that cannot execute on a group's backends."""
    return SessionLoad(name=name, latency=np.array([0.0, 1.0]), budget=0.0, rate=0.0)


def _assign_backends(groups: Sequence[_Group], bins: list[Bin], previous: ClusterPlan) -> list[Bin]:
    """Give the nodes of each group to its backends so that few models move."""
    from scipy.optimize import linear_sum_assignment

    before = _models(previous.backends)
    renamed = []
    for group in groups:
        own = [each for each in bins if each.backend in group.backends]
        here = [[group.load(load).name for load, _ in each.node.loads] for each in own]
        kept = np.array(
            [[len(before.get(b.name, set()) & set(names)) for b in group.backends] for names in here]
        ).reshape(len(own), len(group.backends))
        rows, columns = linear_sum_assignment(-kept)
        pairs = zip(rows.tolist(), columns.tolist(), strict=True)
        renamed += [Bin(group.backends[column], own[row].node) for row, column in pairs]
    return renamed


def _models(backends: Sequence[PlannedBackend]) -> dict[str, set[str]]:
    """Return the sessions whose models each backend has."""
    return {backend.name: {one.name for one in backend.sessions} for backend in backends}


def _planned_backends(
    groups: Sequence[_Group], bins: Sequence[Bin], backends: Sequence[Backend]
) -> tuple[PlannedBackend, ...]:
    """Return what the filled backends do, in the order of all backends."""
    place = {backend.name: number for number, backend in enumerate(backends)}
    group_of = {backend.name: group for group in groups for backend in group.backends}
    ordered = sorted(bins, key=lambda each: place[each.backend.name])
    return tuple(_planned_backend(each, group_of[each.backend.name]) for each in ordered)


def _planned_backend(each: Bin, group: _Group) -> PlannedBackend:
    sessions, memory = [], 0.0
    for (index, rate), batch in zip(each.node.loads, each.node.batches, strict=True):
        load = group.load(index)
        execution = float(load.latency[batch])
        sessions.append(PlannedSession(name=load.name, batch=batch, rate=rate, execution=execution))
        memory += load.memory
    return PlannedBackend(
        name=each.backend.name,
        cycle=each.node.cycle,
        sessions=tuple(sessions),
        memory=memory,
        occupancy=each.node.occupancy,
    )


def _load(groups: Sequence[_Group], planned: Sequence[PlannedBackend], names: Sequence[str]) -> float:
    """Return the accelerators that would serve what is served, if each executed the best batches only."""
    served: dict[str, float] = {}
    for backend in planned:
        for one in backend.sessions:
            served[one.name] = served.get(one.name, 0.0) + one.rate
    best = {name: max(_best_rate(group, index) for group in groups) for index, name in enumerate(names)}
    return sum(rate / best[name] for name, rate in served.items())


def _best_rate(group: _Group, index: int) -> float:
    load = group.loads[index]
    return load.best if load is not None and group.usable[index] else 0.0


def _count_loaded(planned: Sequence[PlannedBackend], previous: ClusterPlan | None) -> int:
    """Return how many models backends must load that they did not have in the epoch before."""
    before = _models(previous.backends) if previous is not None else {}
    return sum(len(models - before.get(name, set())) for name, models in _models(planned).items())


def _unserved(groups: Sequence[_Group], index: int, name: str, rate: float) -> Unserved:
    """Say why a session, or a part of its rate, has no place."""
    if usable := [group for group in groups if group.usable[index]]:
        backends = sum(len(group.backends) for group in usable)
        which = "" if len(usable) == len(groups) else " that can serve it"
        they = f"the only backend{which} is" if backends == 1 else f"the {backends} backends{which} are"
        return Unserved(name=name, rate=rate, why=f"{they} full")
    known = [load for group in groups if (load := group.loads[index]) is not None]
    if not any(load.fits for load in known):
        least = min(known, key=lambda load: 2 * float(load.latency[1]) - load.budget)
        need, budget = 2e3 * float(least.latency[1]), 1e3 * least.budget
        why = "no backend serves it in time: a request waits for one batch and takes another, "
        why += f"at least {need:.6g} ms, but has {budget:.6g} ms"
        return Unserved(name=name, rate=rate, why=why, never=True)
    in_time = [(group, load) for group in groups if (load := group.loads[index]) is not None and load.fits]
    need = min(load.memory for _, load in in_time) / 2**20
    room = max(group.backends[0].memory for group, _ in in_time) / 2**20
    where = (
        "the largest backend" if len(in_time) == len(groups) else "the largest backend that serves it in time"
    )
    why = f"its model needs {need:.6g} MiB, and {where} has {room:.6g}"
    return Unserved(name=name, rate=rate, why=why, never=True)
