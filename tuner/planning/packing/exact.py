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

import math
from collections.abc import Sequence

import numpy as np

from tuner.planning.packing.kernel import ROUNDING
from tuner.planning.packing.load import SessionLoad
from tuner.planning.packing.squishy import PackedNode

__all__ = ["MOST_RESIDUES", "fewest_nodes"]

MOST_RESIDUES = 14
"""Beyond it there may be more sets than can be looked at."""
MOST_SETS = 20_000

Member = tuple[int, float]
"""(load, requests/s)."""


def fewest_nodes(
    loads: Sequence[SessionLoad], nodes: Sequence[PackedNode], *, memory: float, seconds: float = 10.0
) -> list[PackedNode] | None:
    """Return a packing with the fewest accelerators for the residues; None if that cannot be proved in time.

    Args:
        loads: What is packed.
        nodes: The greedy packing.
        memory: Bytes of an accelerator.
        seconds: Time for the solver.
    """
    whole = [node for node in nodes if _is_full(loads, node)]
    residues = [member for node in nodes if not _is_full(loads, node) for member in node.loads]
    if not residues:
        return list(whole)
    sets = _sets(loads, residues, memory) if len(residues) <= MOST_RESIDUES else None
    if sets is None:
        return None
    chosen = _cover(list(sets), len(residues), seconds)
    return None if chosen is None else whole + [sets[one] for one in chosen]


def _is_full(loads: Sequence[SessionLoad], node: PackedNode) -> bool:
    load, rate = node.loads[0]
    return len(node.loads) == 1 and rate >= loads[load].peak * (1 - ROUNDING)


def _sets(
    loads: Sequence[SessionLoad], residues: Sequence[Member], memory: float
) -> dict[tuple[int, ...], PackedNode] | None:
    """Return every set of residues that one accelerator can serve; None if they are too many."""
    found: dict[tuple[int, ...], PackedNode] = {}
    grown: list[tuple[int, ...]] = [()]
    while grown:
        longer = []
        for one in grown:
            for new in range(one[-1] + 1 if one else 0, len(residues)):
                larger = (*one, new)
                parts = (larger[:place] + larger[place + 1 :] for place in range(len(larger) - 1))
                if len(larger) > 1 and not all(part in found for part in parts):
                    continue
                node = _node_of(loads, [residues[index] for index in larger], memory)
                if node is not None:
                    found[larger] = node
                    longer.append(larger)
        if len(found) > MOST_SETS:
            return None
        grown = longer
    return found


def _node_of(loads: Sequence[SessionLoad], members: Sequence[Member], memory: float) -> PackedNode | None:
    """Return the node with the longest duty cycle that serves these in time; None if there is none."""
    if sum(loads[load].memory for load, _ in members) > memory * (1 + ROUNDING):
        return None
    rate = np.array([rate for _, rate in members])
    longest = min(_longest_wait(loads[load]) for load, _ in members)
    # Between two of these ends no batch changes, and so neither does what has to fit into the cycle.
    ends = [np.arange(1, int(longest * own) + 1) / own for own in rate.tolist()]
    high = np.unique(np.concatenate([*ends, [longest]]))[::-1]  # (k,) s
    low = np.append(high[1:], 0.0)
    sizes = np.maximum(np.ceil(high * rate[:, None] - ROUNDING), 1).astype(np.int64)  # (members, k)
    latency = np.stack([_latency(loads[load], own) for (load, _), own in zip(members, sizes, strict=True)])
    budget = np.array([loads[load].budget for load, _ in members])
    busy, upper = latency.sum(axis=0), np.minimum(high, (budget[:, None] - latency).min(axis=0) + ROUNDING)
    fits = np.flatnonzero((busy <= upper * (1 + ROUNDING)) & (upper > low))
    if not fits.size:
        return None
    at = int(fits[0])
    return PackedNode(
        cycle=float(upper[at]),
        loads=tuple(members),
        batches=tuple(sizes[:, at].tolist()),
        occupancy=float(busy[at] / upper[at]),
    )


def _longest_wait(load: SessionLoad) -> float:
    return load.budget - float(load.latency[1])


def _latency(load: SessionLoad, sizes: np.ndarray) -> np.ndarray:
    largest = len(load.latency) - 1
    return np.where(sizes <= largest, load.latency[np.minimum(sizes, largest)], math.inf)


def _cover(sets: Sequence[tuple[int, ...]], count: int, seconds: float) -> list[tuple[int, ...]] | None:
    """Return the fewest sets that hold each residue once; None if the solver did not end in time."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csc_array

    rows = np.concatenate([np.array(one) for one in sets])
    columns = np.repeat(np.arange(len(sets)), [len(one) for one in sets])
    holds = csc_array((np.ones(rows.size), (rows, columns)), shape=(count, len(sets)))
    found = milp(
        np.ones(len(sets)),
        integrality=np.ones(len(sets)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(holds, 1, 1),
        options={"time_limit": seconds},
    )
    if found.status != 0 or found.x is None:
        return None
    return [one for one, share in zip(sets, found.x, strict=True) if share > 0.5]
