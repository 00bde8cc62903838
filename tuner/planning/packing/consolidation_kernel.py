"""The compiled steps of :mod:`~.consolidation`."""

from __future__ import annotations

import math

import numpy as np

from tuner._jit import njit
from tuner.planning.packing.kernel import NONE
from tuner.planning.packing.load import LoadArrays
from tuner.rounding import ROUNDING

__all__ = ["best_fit", "known_cycles", "parts_of_cycles"]


@njit
def known_cycles(loads: LoadArrays, residue: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Return the duty cycles, s, at which a batch of some residue is full, or ends its wait.   # (c,).

    Args:
        loads: What the residues are of.
        residue: The load of each.   # (n,)
        rate: Of each, requests/s.   # (n,)
    """
    found, count = np.empty(loads.latency.size), 0
    for own in range(residue.size):
        load = residue[own]
        first = loads.start[load]
        for size in range(1, loads.start[load + 1] - first):
            longest = loads.budget[load] - loads.latency[first + size]
            if longest * rate[own] <= size - 1:
                break
            found[count] = min(size / rate[own], longest)
            count += 1
    return found[:count]


@njit
def parts_of_cycles(
    loads: LoadArrays, residue: np.ndarray, rate: np.ndarray, cycles: np.ndarray
) -> np.ndarray:
    """Return the part of each duty cycle that each residue needs; infinite if not in time.   # (n, c)."""
    parts = np.empty((residue.size, cycles.size))
    for own in range(residue.size):
        load = residue[own]
        first, largest = loads.start[load], loads.start[load + 1] - loads.start[load] - 1
        for place in range(cycles.size):
            cycle = cycles[place]
            size = max(math.ceil(cycle * rate[own] - ROUNDING), 1)
            parts[own, place] = np.inf
            if size <= largest:
                latency = loads.latency[first + size]
                if cycle + latency <= loads.budget[load] + ROUNDING:
                    parts[own, place] = latency / cycle
    return parts


@njit
def best_fit(
    parts: np.ndarray, order: np.ndarray, memory_of: np.ndarray, memory: float, limit: int
) -> np.ndarray:
    """Put each residue into the node that it fills best, or into a new one.

    A node is the better the more of what its members need at least it holds, and the less they need beyond
    it, which counts twice: in the best duty cycle for all, most have to do with another than their own best.

    Args:
        parts: Of each duty cycle that each residue needs.   # (n, c)
        order: In which they are placed.   # (n,)
        memory_of: Bytes of each.   # (n,)
        memory: Bytes of an accelerator.
        limit: Nodes beyond which the packing stops; what is left out gets NONE.

    Returns:
        The node of each residue.   # (n,)
    """
    count, cycles = parts.shape
    node_of, nodes = np.full(count, NONE), 0
    filled = np.zeros((limit, cycles))  # part of each duty cycle that a node's members need
    least = np.empty(count)  # that a residue needs in any cycle
    for own in range(count):
        least[own] = parts[own].min()
    taken, bytes_of = np.zeros(limit), np.zeros(limit)
    for own in order:
        best, where = -np.inf, NONE
        for node in range(nodes):
            if taken[node] + least[own] > 1 + ROUNDING or bytes_of[node] + memory_of[own] > memory * (
                1 + ROUNDING
            ):
                continue
            part = np.inf
            for place in range(cycles):
                part = min(part, filled[node, place] + parts[own, place])
            worth = 3 * (taken[node] + least[own]) - 2 * part
            if part <= 1 + ROUNDING and worth > best:
                best, where = worth, node
        if where == NONE:
            if nodes >= limit:
                break
            where, nodes = nodes, nodes + 1
        node_of[own] = where
        taken[where] += least[own]
        bytes_of[where] += memory_of[own]
        for place in range(cycles):
            filled[where, place] += parts[own, place]
    return node_of
