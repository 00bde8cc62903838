"""Consolidation: a squishy packing with fewer accelerators than the greedy one, where there is one.

Squishy bin packing (Nexus, Algorithm 1) merges residues in one order, and gives a node the shortest of the
duty cycles that its members have by themselves. Both cost accelerators: an order that is good for the first
nodes leaves bad ones for the last, and the members of a node may be served for less in another cycle, as a
longer one spreads the cost of each batch over more requests, and one in which batches are full wastes none.

Here a residue has, for each of many duty cycles, the part of it that it would need. A node is the sum of its
members, and has room as long as one cycle has. Residues are placed by best fit, the largest first; then again
and again in orders that chance disturbs, until the least that the residues need is reached, or the work is
done that a plan may cost. The fewest nodes win; the greedy packing remains where none has fewer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tuner.planning.packing.consolidation_kernel import best_fit, known_cycles, parts_of_cycles
from tuner.planning.packing.kernel import NONE
from tuner.planning.packing.load import LoadArrays, SessionLoad, load_arrays
from tuner.planning.packing.squishy import PackedNode, best_node, is_saturated, pack
from tuner.rounding import ROUNDING

__all__ = ["consolidate"]

CYCLES = 256
"""Duty cycles that are looked at, of few residues."""
WORK = 1e7
"""Sums of parts that a plan may cost, about; a few hundredths of a second."""
ORDERS = 300
"""At most."""
NOISE = 0.15
"""Standard deviation of what chance does to the logarithm of a residue's size."""

Member = tuple[int, float]
"""(load, requests/s)."""


def consolidate(
    loads: Sequence[SessionLoad], rates: Sequence[float] | None = None, memory: float = math.inf
) -> list[PackedNode]:
    """Return the accelerators that serve the loads; see :func:`~tuner.planning.packing.squishy.pack`."""
    nodes = pack(loads, rates, memory)
    saturated = [node for node in nodes if is_saturated(loads, node)]
    residues = [member for node in nodes if not is_saturated(loads, node) for member in node.loads]
    arrays, shared = load_arrays(loads), len(nodes) - len(saturated)
    groups = _fewest(arrays, residues, memory, shared) if shared > 1 else None
    if groups is None:
        return nodes
    found = [best_node(arrays, group) for group in groups]
    return saturated + [node for node in found if node is not None]


def _fewest(
    loads: LoadArrays, residues: Sequence[Member], memory: float, nodes: int
) -> list[list[Member]] | None:
    """Return the residues of each node in a packing with fewer nodes than these; None if none was found."""
    count, load, rate = len(residues), *(np.array(column) for column in zip(*residues, strict=True))
    cycles = np.unique(known_cycles(loads, load, rate))
    most = int(np.clip(2 * WORK / (count * nodes), 16, CYCLES))
    if cycles.size > most:
        cycles = cycles[np.linspace(0, cycles.size - 1, most).round().astype(np.int64)]
    parts = parts_of_cycles(loads, load, rate, cycles)
    least = np.minimum(parts.min(axis=1), 1.0)
    rounds = int(np.clip(2 * WORK / (count * nodes * cycles.size), 1, ORDERS))
    found = None
    for order in _orders(least, rounds):
        if nodes <= math.ceil(least.sum() - ROUNDING):
            break
        node_of = best_fit(parts, order, loads.memory[load], memory, nodes - 1)
        if (node_of != NONE).all():
            found, nodes = node_of, int(node_of.max()) + 1
    if found is None:
        return None
    return [[residues[place] for place in np.flatnonzero(found == node).tolist()] for node in range(nodes)]


def _orders(least: np.ndarray, count: int) -> Iterator[np.ndarray]:
    """Yield the residues with the largest first, then disturbed; the same loads give the same plan."""
    sizes, generator = np.log(least), np.random.default_rng(0)
    yield np.argsort(-sizes, kind="stable")
    for _ in range(count - 1):
        yield np.argsort(-(sizes + NOISE * generator.standard_normal(sizes.size)))
