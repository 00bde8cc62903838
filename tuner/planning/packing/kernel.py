"""The compiled steps of squishy bin packing (Nexus, Algorithm 1); :mod:`~.squishy` calls them."""

from __future__ import annotations

import math

import numpy as np

from tuner._jit import njit, njit_inline
from tuner.planning.packing.load import LoadArrays
from tuner.rounding import ROUNDING

__all__ = ["NONE", "choose_cycle", "merge_residues", "residues_of", "saturate"]

NONE = -1
"""No node, no residue."""
CYCLE, BUSY, LEAST, SHORTEST, MEMORY = range(5)
"""What is kept of a node: its cycle, s; what of it is executed, s; the least part that could be, whatever the
cycle; the same in batches of 1, s; bytes."""


@njit
def saturate(loads: LoadArrays) -> tuple[np.ndarray, np.ndarray]:
    """Return the best batch with ``2 l(b) <= budget`` and its throughput, per load (Alg. 1, lines 6 and 7).

    A load that is not in time even in batches of 1 is given those.
    """
    count = loads.rate.size
    batch, peak = np.ones(count, np.int64), np.empty(count)
    for load in range(count):
        first, end = loads.start[load], loads.start[load + 1]
        longest = loads.budget[load] / 2 * (1 + ROUNDING)
        best = 0.0
        for size in range(1, end - first):
            latency = loads.latency[first + size]
            if latency <= longest and size / latency > best * (1 + ROUNDING):
                best = size / latency
        for size in range(1, end - first):
            latency = loads.latency[first + size]
            if latency <= longest and size / latency >= best * (1 - ROUNDING):
                batch[load] = size
        peak[load] = batch[load] / loads.latency[first + batch[load]]
    return batch, peak


@njit
def residues_of(loads: LoadArrays, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the longest duty cycle of each residue by itself, s, and its occupancy (lines 13 to 15).

    Args:
        loads: Their rates are not read.
        left: Rate of the residue of each load, requests/s.   # (n,)
    """
    cycle, occupancy = np.empty(left.size), np.empty(left.size)
    for load in range(left.size):
        first, size = loads.start[load], loads.start[load + 1] - loads.start[load] - 1
        rate, budget = left[load], loads.budget[load]
        while size and not size + rate * loads.latency[first + size] <= rate * budget * (1 + ROUNDING):
            size -= 1
        if size and size >= rate * loads.latency[first + size]:
            cycle[load] = size / rate
            occupancy[load] = loads.latency[first + size] / cycle[load]
        elif size:  # too slow in such batches: smaller ones, or larger ones that are not always full
            cycle[load], occupancy[load] = choose_cycle(loads, np.array([load]), left[load : load + 1])
        else:  # requests too rare to wait for each other
            alone = loads.latency[first + 1]
            cycle[load] = max(budget - alone, alone)
            occupancy[load] = alone / cycle[load]
    return cycle, occupancy


@njit
def merge_residues(  # noqa: PLR0917 - a kernel has no keywords
    loads: LoadArrays,
    residue: np.ndarray,
    rate: np.ndarray,
    cycle: np.ndarray,
    least: np.ndarray,
    memory: float,
    limit: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Put each residue into the node that it fills best, or into one of its own (lines 18 to 29).

    Args:
        loads: What the residues are of.
        residue: The load of each residue, in the order in which they are placed.   # (k,)
        rate: Of each residue, requests/s.   # (k,)
        cycle: The longest duty cycle of each, s.   # (k,)
        least: What each occupies at least, whatever the cycle.   # (k,)
        memory: Bytes of an accelerator.
        limit: Nodes beyond which the packing stops; the last ones are then left out.

    Returns:
        The node of each residue, NONE if left out.   # (k,)
        The duty cycle of each node, s.   # (nodes,)
    """
    count, nodes = residue.size, 0
    node_of, following = np.full(count, NONE), np.full(count, NONE)  # members of a node: a linked list
    first, last = np.full(count, NONE), np.full(count, NONE)
    node = np.zeros((count, 5))
    for own in range(count):
        best, where = 0.0, NONE
        shortest = loads.latency[loads.start[residue[own]] + 1]
        for other in range(nodes):
            shorter = min(node[other, CYCLE], cycle[own])
            if (
                node[other, LEAST] + least[own] > 1 + ROUNDING
                or node[other, SHORTEST] + shortest > shorter * (1 + ROUNDING)
                or node[other, MEMORY] + loads.memory[residue[own]] > memory * (1 + ROUNDING)
            ):
                continue
            total = node[other, BUSY]
            if shorter < node[other, CYCLE]:
                total = _busy_members(loads, residue, rate, following, first[other], shorter)
            total += _busy(loads, residue[own], rate[own], shorter)
            if total <= shorter * (1 + ROUNDING) and total / shorter > best:
                best, where = total / shorter, other
        if where == NONE:
            if nodes >= limit:
                break
            where, nodes = nodes, nodes + 1
            first[where], node[where, CYCLE] = own, cycle[own]
            size = max(math.ceil(cycle[own] * rate[own] - ROUNDING), 1)
            node[where, BUSY] = loads.latency[loads.start[residue[own]] + size]
        else:
            following[last[where]], node[where, CYCLE] = own, min(node[where, CYCLE], cycle[own])
            node[where, BUSY] = best * node[where, CYCLE]
        last[where], node_of[own] = own, where
        node[where, LEAST] += least[own]
        node[where, MEMORY] += loads.memory[residue[own]]
        node[where, SHORTEST] += shortest
    return node_of, node[:nodes, CYCLE].copy()


@njit
def choose_cycle(loads: LoadArrays, members: np.ndarray, rates: np.ndarray) -> tuple[float, float]:
    """Return the duty cycle of which a node executes the least part, s, and that part.

    The part is infinite if no cycle is in time for all. It is least where a member's batch is full, or where
    its budget ends the wait for one more request: up to there the batches of all are the same.

    Args:
        loads: Their rates are not read.
        members: The loads on the node.   # (m,)
        rates: Of each, requests/s.   # (m,)
    """
    chosen, least = 0.0, np.inf
    for own in range(members.size):
        load, rate = members[own], rates[own]
        first = loads.start[load]
        for size in range(1, loads.start[load + 1] - first):
            longest = loads.budget[load] - loads.latency[first + size]
            if longest * rate <= size - 1:
                break
            cycle, busy = min(size / rate, longest), 0.0
            for other in range(members.size):
                busy += _busy(loads, members[other], rates[other], cycle)
                if busy >= least * cycle:
                    break
            else:
                chosen, least = cycle, busy / cycle
    return chosen, least


@njit_inline
def _busy_members(  # noqa: PLR0917 - a kernel has no keywords
    loads: LoadArrays,
    residue: np.ndarray,
    rate: np.ndarray,
    following: np.ndarray,
    member: int,
    cycle: float,
) -> float:
    """Return how long a cycle executes a node's members from one on, s; stops when it is full."""
    total = 0.0
    while member != NONE and total <= cycle:
        total += _busy(loads, residue[member], rate[member], cycle)
        member = following[member]
    return total


@njit_inline
def _busy(loads: LoadArrays, load: int, rate: float, cycle: float) -> float:
    """Return how long a cycle executes a load, s; infinite if that is not in time (figure 7)."""
    first, largest = loads.start[load], loads.start[load + 1] - loads.start[load] - 1
    size = max(math.ceil(cycle * rate - ROUNDING), 1)
    if size > largest:
        return np.inf
    latency = loads.latency[first + size]
    return latency if cycle + latency <= loads.budget[load] + ROUNDING else np.inf
