"""Fills equal backends: what they host stays, what is left is packed, and the least occupied are released.

:mod:`~.epoch` decides what is filled, in which order, and from which plan of the epoch before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tuner.planning.packing.load import LoadArrays, SessionLoad
from tuner.planning.packing.plan import Backend, ClusterPlan
from tuner.planning.packing.squishy import PackedNode, best_node
from tuner.rounding import ROUNDING

__all__ = ["Bin", "Filling", "Packing", "has_fallen", "keep_hosted", "pack_afresh", "place_rest", "release"]

Packing = Callable[[Sequence[SessionLoad], Sequence[float], float], list[PackedNode]]
"""Packs loads at these rates onto accelerators with this memory, bytes."""
WHOLE = 1 - 1e-6
"""A session fills a backend from this part of its peak rate on."""
LOW = 0.97
"""Backends are released only if the load is below this part of the epoch before (the authors' code)."""
HOSTED_BONUS = 1e6
"""Added to the worth of a backend that hosts a session already, so that it comes before all others."""


@dataclass
class Bin:
    """A backend while it is being filled."""

    backend: Backend
    node: PackedNode


@dataclass
class Filling:
    """Equal backends while they are filled: what is planned so far, and what is left."""

    loads: Sequence[SessionLoad]
    arrays: LoadArrays
    """The loads as arrays."""
    left: list[float]
    """requests/s of each session that are still to be placed."""
    nowhere_else: list[bool]
    """Whether no other group of backends can serve the session."""
    spill: float = 1.0
    """Part of its duty cycle up to which a backend may execute before it loses sessions."""
    bins: list[Bin] = field(default_factory=list)


def pack_afresh(filling: Filling, backends: Sequence[Backend], packing: Packing) -> None:
    """Pack all loads anew onto empty backends; if too few, the fullest nodes. Modifies ``filling``."""
    nodes = packing(filling.loads, filling.left, backends[0].memory)
    if len(nodes) > len(backends):  # first those with a session that has no other place
        nodes.sort(key=lambda node: (-_has_only_place_here(filling, node), -node.occupancy))
    for backend, node in zip(backends, nodes, strict=False):
        filling.bins.append(Bin(backend, node))
        _mark_placed(filling, node.loads)


def _has_only_place_here(filling: Filling, node: PackedNode) -> bool:
    return any(filling.nowhere_else[load] for load, _ in node.loads)


def _mark_placed(filling: Filling, loads: Iterable[tuple[int, float]]) -> None:
    """Subtract placed (load, requests/s) from what is left. ``filling`` is modified in place."""
    for load, rate in loads:
        filling.left[load] = max(filling.left[load] - rate, 0.0)
        if filling.left[load] <= ROUNDING * filling.loads[load].rate:
            filling.left[load] = 0.0


def keep_hosted(filling: Filling, backends: Sequence[Backend], previous: ClusterPlan) -> None:
    """Let backends keep what they host, at the new rates. ``filling`` is modified in place."""
    index = {load.name: number for number, load in enumerate(filling.loads)}
    known = {backend.name: backend for backend in backends}
    hosted = {name: rates for name, rates in previous.hosted.items() if name in index}
    shares: dict[str, dict[int, float]] = {}
    for name, rates in hosted.items():
        here = {backend: rate for backend, rate in rates.items() if backend in known}
        load = filling.loads[index[name]]
        for backend, rate in _shares(load, here, filling.left[index[name]]).items():
            shares.setdefault(backend, {})[index[name]] = rate
    for name, members in shares.items():
        node = _without_overload(filling, members, known[name].memory)
        if node is not None:
            filling.bins.append(Bin(known[name], node))
            _mark_placed(filling, node.loads)


def _shares(load: SessionLoad, before: dict[str, float], rate: float) -> dict[str, float]:
    """Return a session's new rate on the backends that host it; what they cannot take is left out."""
    peak = load.peak
    full = [name for name, own in before.items() if own >= WHOLE * peak]
    rest = {name: own for name, own in before.items() if own < WHOLE * peak}
    whole = full[: int(rate / peak + ROUNDING)] if peak else []
    shares = dict.fromkeys(whole, peak)
    remaining = rate - peak * len(whole)
    if len(whole) < len(full) and remaining > sum(rest.values()) + ROUNDING * rate:
        shares[full[len(whole)]] = remaining  # less than it had, where the others would have more
    elif rest and remaining > ROUNDING * rate:
        factor = remaining / sum(rest.values())
        shares |= {name: min(own * factor, peak) for name, own in rest.items()}
    return shares


def _without_overload(filling: Filling, members: dict[int, float], memory: float) -> PackedNode | None:
    """Return the node without the cheapest sessions, until the rest fits; None if nothing fits."""
    loads = filling.loads
    by_cost = sorted(members.items(), key=lambda member: -member[1] / loads[member[0]].peak)
    while by_cost:
        node = _fit_node(filling, by_cost, memory, filling.spill)
        if node is not None:
            return node
        by_cost.pop()
    return None


def _fit_node(
    filling: Filling, members: Sequence[tuple[int, float]], memory: float, full: float = 1.0
) -> PackedNode | None:
    """Return the node that serves (load, requests/s); None if there would be no time or memory for it."""
    if sum(filling.loads[load].memory for load, _ in members) > memory * (1 + ROUNDING):
        return None
    return best_node(filling.arrays, members, full)


def place_rest(filling: Filling, backends: Sequence[Backend]) -> None:
    """Pack what is left: whole accelerators, then residues by best fit. ``filling`` is modified in place."""
    used = {each.backend.name for each in filling.bins}
    free = [backend for backend in backends if backend.name not in used]
    pieces: list[tuple[float, int, float]] = []
    for index, load in enumerate(filling.loads):
        rate = filling.left[index]
        if rate <= 0:
            continue
        whole = int(rate / load.peak + ROUNDING)
        pieces += [(1.0, index, load.peak)] * whole
        if (rest := rate - whole * load.peak) > ROUNDING * rate:
            pieces.append((rest / load.peak, index, rest))
    for _, index, rate in sorted(pieces, key=lambda piece: -piece[0]):
        if not _place(filling, index, rate, filling.bins):
            node = _fit_node(filling, [(index, rate)], math.inf) if free else None
            if node is None:
                continue
            filling.bins.append(Bin(free.pop(0), node))
        _mark_placed(filling, [(index, rate)])


def _place(filling: Filling, load: int, rate: float, bins: Sequence[Bin]) -> bool:
    """Add a rate to the bin that it fills best; return whether one had room. That bin is modified."""
    best, chosen, made = 0.0, None, None
    for each in bins:
        members = dict(each.node.loads)
        here = load in members
        members[load] = members.get(load, 0.0) + rate
        node = _fit_node(filling, list(members.items()), each.backend.memory)
        if node is not None and (worth := node.occupancy + HOSTED_BONUS * here) > best:
            best, chosen, made = worth, each, node
    if chosen is None or made is None:
        return False
    chosen.node = made
    return True


def has_fallen(filling: Filling, backends: Sequence[Backend], previous: ClusterPlan) -> bool:
    """Whether these backends serve clearly less than in the epoch before."""
    return _load_of(filling) < LOW * _load_before(filling, backends, previous)


def _load_of(filling: Filling) -> float:
    served = [(load, rate) for each in filling.bins for load, rate in each.node.loads]
    return sum(rate / filling.loads[load].peak for load, rate in served)


def _load_before(filling: Filling, backends: Sequence[Backend], previous: ClusterPlan) -> float:
    """Return the load of these backends in the epoch before; what others had is no load that they lost."""
    peaks = {load.name: load.peak for load in filling.loads}
    here = {backend.name for backend in backends}
    return sum(
        rate / peaks[name]
        for name, rates in previous.hosted.items()
        for backend, rate in rates.items()
        if backend in here and peaks.get(name)
    )


def release(filling: Filling, backends: Sequence[Backend] | None = None) -> None:
    """Empty the least occupied backends whose sessions all fit onto others. ``filling`` is modified.

    Args:
        filling: What is planned.
        backends: All of the group, to place what is left on those that are emptied; only as many as it needs.
    """
    for least in sorted(filling.bins, key=lambda each: each.node.occupancy):
        if backends is not None and not any(filling.left):
            return
        others = [each for each in filling.bins if each is not least]
        before = [each.node for each in others]
        if all(_place(filling, load, rate, others) for load, rate in least.node.loads):
            filling.bins = others
            if backends is not None:
                place_rest(filling, backends)
        else:
            for each, node in zip(others, before, strict=True):
                each.node = node
