"""The fewest accelerators of a small instance, by integer programming, to judge the greedy packing by.

Nexus, section 6.1, the integer program for residual loads: each residue is on one accelerator, whose batches
fit into its duty cycle, within all budgets and the memory. The program is stated over sets of residues: every
set that one accelerator can serve is found first, growing them one by one, as a part of such a set is one,
too; then scipy's MILP chooses the fewest sets that hold every residue.

Where we differ: batches are whole numbers, and any duty cycle may be chosen, not just the shortest of those
that the residues have by themselves. Accelerators that one session fills are taken as the greedy packing
has them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

import numpy as np

from tuner.planning.integer import solve_integer
from tuner.planning.packing.load import SessionLoad, load_arrays
from tuner.planning.packing.squishy import PackedNode, best_node, is_saturated
from tuner.rounding import ROUNDING

__all__ = ["MOST_RESIDUES", "fewest_nodes"]

MOST_RESIDUES = 14
"""Beyond it there may be more sets than can be looked at."""
MOST_SETS = 20_000
LONGEST = 10.0
"""s that the solver may take."""

Member = tuple[int, float]
"""(load, requests/s)."""


def fewest_nodes(
    loads: Sequence[SessionLoad], nodes: Sequence[PackedNode], *, memory: float
) -> list[PackedNode] | None:
    """Return a packing with the fewest accelerators for the residues; None if that cannot be proved in time.

    Args:
        loads: What is packed.
        nodes: The greedy packing.
        memory: Bytes of an accelerator.
    """
    whole = [node for node in nodes if is_saturated(loads, node)]
    residues = [member for node in nodes if not is_saturated(loads, node) for member in node.loads]
    if not residues:
        return list(whole)
    sets = _sets(loads, residues, memory) if len(residues) <= MOST_RESIDUES else None
    if sets is None:
        return None
    chosen = _cover(list(sets), len(residues))
    return None if chosen is None else whole + [sets[one] for one in chosen]


def _sets(
    loads: Sequence[SessionLoad], residues: Sequence[Member], memory: float
) -> dict[tuple[int, ...], PackedNode] | None:
    """Return every set of residues that one accelerator can serve; None if they are too many."""
    arrays, found = load_arrays(loads), dict[tuple[int, ...], PackedNode]()
    largest: list[tuple[int, ...]] = [()]
    while largest:
        nodes = {}
        for larger in _with_one_more(largest, found, len(residues)):
            members = [residues[index] for index in larger]
            fits = sum(loads[load].memory for load, _ in members) <= memory * (1 + ROUNDING)
            if fits and (node := best_node(arrays, members)) is not None:
                nodes[larger] = node
        found |= nodes
        if len(found) > MOST_SETS:
            return None
        largest = list(nodes)
    return found


def _with_one_more(
    sets: Sequence[tuple[int, ...]], served: Container[tuple[int, ...]], count: int
) -> Iterator[tuple[int, ...]]:
    """Yield sets with one more residue, of which all parts with one less are served."""
    for one in sets:
        for new in range(one[-1] + 1 if one else 0, count):
            # Without its last residue it is the set that it was made of, which is served.
            if all((*one[:place], *one[place + 1 :], new) in served for place in range(len(one))):
                yield (*one, new)


def _cover(sets: Sequence[tuple[int, ...]], count: int) -> list[tuple[int, ...]] | None:
    """Return the fewest sets that hold each residue once; None if the solver did not end in time."""
    from scipy.optimize import Bounds, LinearConstraint
    from scipy.sparse import csc_array

    rows = np.concatenate([np.array(one) for one in sets])
    columns = np.repeat(np.arange(len(sets)), [len(one) for one in sets])
    holds = csc_array((np.ones(rows.size), (rows, columns)), shape=(count, len(sets)))
    found = solve_integer(
        np.ones(len(sets)),
        integrality=np.ones(len(sets)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(holds, 1, 1),
        options={"time_limit": LONGEST},
    )
    if found.status != 0 or found.x is None:
        return None
    return [one for one, share in zip(sets, found.x, strict=True) if share > 0.5]
