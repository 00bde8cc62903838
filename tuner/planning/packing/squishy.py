"""Squishy bin packing: which sessions share an accelerator, in which batches and in which duty cycle.

Nexus, section 6.1 and Algorithm 1. Sessions that fill whole accelerators get them (ScheduleSaturate, the
best batch with ``2 l(b) <= budget``); what is left of each is given the largest batch with
``b / r + l(b) <= budget``, and these residues are merged, the fullest first, into the node that they fill
best (ScheduleResidue): the shorter duty cycle holds for both, all batches of a cycle must fit into it, and
the models into the memory.

Where we differ: batch sizes are whole numbers, rounded up, and the budget is checked again with them. Of the
batches for whole accelerators the one with the highest throughput is taken, which is the largest wherever
the paper's assumption holds. The largest batch in time may be too slow for a residue just below a whole
accelerator, or where throughput falls in large batches; it then gets the duty cycle that executes the least
part, whose batch is smaller, or larger and not always full.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.planning.packing.kernel import (
    NONE,
    choose_cycle,
    merge_residues,
    residues_of,
    saturate,
)
from tuner.planning.packing.load import LoadArrays, SessionLoad, load_arrays
from tuner.rounding import ROUNDING

__all__ = ["PackedNode", "best_node", "is_saturated", "make_node", "pack", "pack_arrays"]

UNLIMITED = 1 << 40


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedNode:
    """What one accelerator is planned to do: the batches of one duty cycle, one session after the other."""

    cycle: float
    """s"""
    loads: tuple[tuple[int, float], ...]
    """(load, requests/s) in the order of their turns."""
    batches: tuple[int, ...]
    """Of each of them."""
    occupancy: float
    """Part of the cycle that is executed."""


def pack(
    loads: Sequence[SessionLoad], rates: Sequence[float] | None = None, memory: float = math.inf
) -> list[PackedNode]:
    """Return the accelerators that serve the loads, the saturated first.

    Args:
        loads: The sessions; each must fit (:attr:`SessionLoad.fits`) and have room in the memory.
        rates: requests/s of each, in place of their own; one of 0 is left out.
        memory: Bytes of every accelerator.
    """
    kept = [index for index, load in enumerate(loads) if (load.rate if rates is None else rates[index]) > 0]
    chosen = [loads[index] for index in kept]
    arrays = load_arrays(chosen, None if rates is None else [rates[index] for index in kept])
    nodes = pack_arrays(arrays, memory=memory)
    assert nodes is not None
    return [
        PackedNode(
            cycle=node.cycle,
            loads=tuple((kept[index], rate) for index, rate in node.loads),
            batches=node.batches,
            occupancy=node.occupancy,
        )
        for node in nodes
    ]


def pack_arrays(
    loads: LoadArrays, *, memory: float = math.inf, limit: int = UNLIMITED
) -> list[PackedNode] | None:
    """Return the accelerators that serve the loads, or None if they are more than ``limit``."""
    batch, peak = saturate(loads)
    whole = (loads.rate / peak + ROUNDING).astype(np.int64)  # Alg. 1, ScheduleSaturate
    saturated = int(whole.sum())
    if saturated > limit:
        return None
    left = loads.rate - whole * peak
    residue = np.flatnonzero(left > ROUNDING * loads.rate)
    cycle, occupancy = residues_of(loads, left)
    residue = residue[np.argsort(-occupancy[residue], kind="stable")]  # line 16
    rate = left[residue]
    node_of, cycles = merge_residues(
        loads, residue, rate, cycle[residue], rate / peak[residue], memory, limit - saturated
    )
    if (node_of == NONE).any():
        return None
    nodes = []
    for load in np.flatnonzero(whole).tolist():
        alone = float(loads.latency[loads.start[load] + batch[load]])
        full = PackedNode(
            cycle=alone, loads=((load, float(peak[load])),), batches=(int(batch[load]),), occupancy=1.0
        )
        nodes += [full] * int(whole[load])
    members: list[list[tuple[int, float]]] = [[] for _ in cycles]
    for node, load, share in zip(node_of.tolist(), residue.tolist(), rate.tolist(), strict=True):
        members[node].append((load, share))
    shared = zip(cycles.tolist(), members, strict=True)
    return nodes + [make_node(loads, each, own) for each, own in shared]


def make_node(loads: LoadArrays, cycle: float, members: Sequence[tuple[int, float]]) -> PackedNode:
    """Return the node that serves (load, requests/s) in a duty cycle, s."""
    batches = tuple(max(math.ceil(cycle * rate - ROUNDING), 1) for _, rate in members)
    starts = zip(members, batches, strict=True)
    busy = sum(float(loads.latency[loads.start[load] + size]) for (load, _), size in starts)
    return PackedNode(cycle=cycle, loads=tuple(members), batches=batches, occupancy=busy / cycle)


def best_node(
    loads: LoadArrays, members: Sequence[tuple[int, float]], full: float = 1.0
) -> PackedNode | None:
    """Return the node that serves (load, requests/s) in the duty cycle of which it executes the least part.

    Args:
        loads: Their rates are not read, and neither is their memory.
        members: What it serves.
        full: The part beyond which there is no such node, and the answer is None.
    """
    chosen, rates = zip(*members, strict=True)
    cycle, part = choose_cycle(loads, np.array(chosen, np.int64), np.array(rates, float))
    return make_node(loads, cycle, members) if part <= full + ROUNDING else None


def is_saturated(loads: Sequence[SessionLoad], node: PackedNode) -> bool:
    """Whether a node is filled by one session."""
    load, rate = node.loads[0]
    return len(node.loads) == 1 and rate >= loads[load].peak * (1 - ROUNDING)
