"""How many accelerators the jobs of a round need, and which jobs are admitted (course report, section 4.4.2).

FIFO gives every job accelerators of its own: whole ones, and one more for what is left. Nexus packs what is
left of several jobs onto one (squishy bin packing). Jobs are admitted first come, first served, as long as
their nodes fit onto the accelerators; the others are dropped in this round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, get_args

from tuner.planning.packing.load import SessionLoad
from tuner.planning.packing.squishy import PackedNode, pack

__all__ = ["RULES", "Admission", "Rule", "admit", "nodes_for"]

Rule = Literal["nexus", "fifo"]
RULES: tuple[Rule, ...] = get_args(Rule)


class Admission(NamedTuple):
    """What is served in a round."""

    nodes: list[PackedNode]
    """One for each accelerator in use; their loads are numbers of jobs."""
    served: float
    """requests/s"""
    offered: float
    """requests/s of all jobs"""

    @property
    def bad_rate(self) -> float:
        """Share of the requests that is dropped."""
        return max(1 - self.served / self.offered, 0.0) if self.offered else 0.0


def nodes_for(rule: Rule, loads: Sequence[SessionLoad]) -> list[PackedNode]:
    """Return the accelerators that serve all jobs that can be served in time."""
    rates = [load.rate if load.fits else 0.0 for load in loads]
    if rule == "nexus":
        return pack(loads, rates)
    nodes = []
    for index, load in enumerate(loads):
        if rates[index]:
            nodes += [_of_job(node, index) for node in pack([load])]
    return nodes


def _of_job(node: PackedNode, job: int) -> PackedNode:
    """Return the node of one job alone, by its number."""
    return replace(node, loads=((job, node.loads[0][1]),))


def admit(rule: Rule, loads: Sequence[SessionLoad], accelerators: int) -> Admission:
    """Return what the accelerators serve of the jobs, in the order in which they came.

    The front of the queue is admitted as far as it fits. The next job does not fit beside it; it is served as
    far as whole accelerators are left. A longer front may fit all the same: with one job more, squishy bin
    packing may need an accelerator less. Bisection finds one of the places where the next job does not fit.
    """
    offered = sum(load.rate for load in loads)
    loads = [_at_most(load, accelerators + 1) for load in loads]
    low, high = 0, len(loads)
    while low < high:
        middle = (low + high + 1) // 2
        if len(nodes_for(rule, loads[:middle])) <= accelerators:
            low = middle
        else:
            high = middle - 1
    nodes = nodes_for(rule, loads[:low])
    if low < len(loads):
        free, part = accelerators - len(nodes), nodes_for("fifo", loads[low : low + 1])
        nodes += [_of_job(node, low) for node in part[:free]]
    served = sum(rate for node in nodes for _, rate in node.loads)
    return Admission(nodes, served, offered)


def _at_most(load: SessionLoad, accelerators: int) -> SessionLoad:
    """Return the load at a rate for which no more accelerators than these are packed."""
    most = load.peak * accelerators
    return replace(load, rate=most) if load.fits and load.rate > most else load
