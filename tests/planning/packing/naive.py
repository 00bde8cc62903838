"""The plain twin of the compiled packing: Algorithm 1 as the paper writes it, on lists."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.planning.packing.load import LoadArrays, SessionLoad

TOLERANCE = 1e-9
Members = list[tuple[int, float]]


def naive_pack(loads: Sequence[SessionLoad], memory: float) -> list[tuple[float, Members]]:
    """The duty cycle and (load, rate) of every node."""
    nodes: list[tuple[float, Members]] = []
    residues: list[tuple[float, float, int, float]] = []
    for index, load in enumerate(loads):
        whole = int(load.rate / load.peak + TOLERANCE)
        nodes += [(float(load.latency[load.batch]), [(index, load.peak)])] * whole
        left = load.rate - whole * load.peak
        if whole == 0 or left > TOLERANCE * load.rate:
            cycle, part = _alone(load, left)
            residues.append((part, cycle, index, left))
    merged: list[tuple[float, Members]] = []
    for _, cycle, index, rate in sorted(residues, key=lambda residue: -residue[0]):
        best, chosen = 0.0, None
        for place, (own, members) in enumerate(merged):
            both = [*members, (index, rate)]
            busy = _busy(loads, both, min(own, cycle), memory)
            if busy is not None and busy / min(own, cycle) > best:
                best, chosen = busy / min(own, cycle), place
        if chosen is None:
            merged.append((cycle, [(index, rate)]))
        else:
            own, members = merged[chosen]
            merged[chosen] = (min(own, cycle), [*members, (index, rate)])
    return nodes + merged


def _alone(load: SessionLoad, rate: float) -> tuple[float, float]:
    """The duty cycle of a residue by itself, and the part of it that is executed."""
    largest = len(load.latency) - 1
    for size in range(largest, 0, -1):
        execution = float(load.latency[size])
        if size + rate * execution <= rate * load.budget * (1 + TOLERANCE):
            if size >= rate * execution:
                return size / rate, execution * rate / size
            slow = [min(b / rate, load.budget - float(load.latency[b])) for b in range(1, largest + 1)]
            cycles = [cycle for cycle in slow if cycle > 0]
            return min(
                ((cycle, naive_part([load], [(0, rate)], cycle)) for cycle in cycles), key=lambda one: one[1]
            )
    execution = float(load.latency[1])
    cycle = max(load.budget - execution, execution)
    return cycle, execution / cycle


def _busy(loads: Sequence[SessionLoad], members: Members, cycle: float, memory: float) -> float | None:
    if sum(loads[index].memory for index, _ in members) > memory * (1 + TOLERANCE):
        return None
    busy = 0.0
    for index, rate in members:
        size = max(math.ceil(cycle * rate - TOLERANCE), 1)
        if size >= len(loads[index].latency):
            return None
        latency = float(loads[index].latency[size])
        if cycle + latency > loads[index].budget + TOLERANCE:
            return None
        busy += latency
    return busy if busy <= cycle * (1 + TOLERANCE) else None


def naive_part(loads: Sequence[SessionLoad], members: Members, cycle: float) -> float:
    """The part of a duty cycle that members need; infinite if one is not in time."""
    busy = 0.0
    for index, rate in members:
        size = max(math.ceil(cycle * rate - TOLERANCE), 1)
        if (
            size >= len(loads[index].latency)
            or cycle + loads[index].latency[size] > loads[index].budget + 1e-9
        ):
            return math.inf
        busy += float(loads[index].latency[size])
    return busy / cycle


def rates_with_bursts(
    loads: LoadArrays, cost: np.ndarray, members: np.ndarray, rates: np.ndarray, sigmas: float
) -> np.ndarray:
    """Return the rates of a node's members with their parts of the node's bursts, requests/s.   # (m,)."""
    work = cost[members] * rates
    deviation = np.sqrt(cost[members] @ work / (loads.budget[members] / 2))  # of the work of a second
    return np.asarray(rates + sigmas * cost[members] * rates / deviation / (loads.budget[members] / 2))
