"""The plan of a file of ``tuner plan cluster``, and how far the greedy packing is from the least possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.errors import InvalidInput
from tuner.planning.packing.consolidation import consolidate
from tuner.planning.packing.epoch import plan_epoch
from tuner.planning.packing.exact import fewest_nodes
from tuner.planning.packing.form import KIND, MOST_BACKENDS, ClusterFile
from tuner.planning.packing.load import SessionLoad
from tuner.planning.packing.plan import ClusterPlan, Unserved
from tuner.planning.packing.squishy import PackedNode, pack

__all__ = ["plan_file"]


def plan_file(asked: ClusterFile) -> ClusterPlan:
    """Return the plan of a file.

    Of a small instance with equal backends and no plan before, the fewest accelerators are found, too; where
    they are fewer than those of the packing, they are the plan.

    Raises:
        InvalidInput: The sessions need more accelerators than can be planned.
    """
    _check_size(asked)
    members = {name: tuple(one.name for one in sessions) for name, sessions in asked.members.items()}
    previous, compared = _previous_plan(asked, members), PackingComparison()
    small = previous is None and not isinstance(asked.backends, tuple)
    plan = plan_epoch(
        asked.loads,
        asked.each_backend,
        memory=asked.memory,
        previous=previous,
        packing=compared.pack if small else consolidate,
    )
    unserved = tuple(each for one in plan.unserved for each in _by_session(one, asked))
    return replace(plan, exact=compared.exact, greedy=compared.greedy, members=members, unserved=unserved)


def _previous_plan(asked: ClusterFile, members: Mapping[str, tuple[str, ...]]) -> ClusterPlan | None:
    """Return the plan of the epoch before, with sessions that share batches under their name of today.

    The name says their SLO only while other sessions share the prefix under another one.
    """
    plan = asked.previous_plan
    if plan is None:
        return None
    names: dict[str, str] = {}
    for old, sessions in plan.members.items():
        alike = {new: len({*sessions} & {*own}) for new, own in members.items()}
        most = max(alike, key=lambda new: (alike[new], new == old), default=old)
        if alike.get(most):
            names[old] = most
    return plan.renamed(names)


def _check_size(asked: ClusterFile) -> None:
    """Refuse what would be packed for hours, before any memory is taken for it."""
    kinds = {backend.kind for backend in asked.each_backend or ()} or {KIND}
    peaks: dict[str, tuple[float, float]] = {}
    for kind in kinds:
        for load in asked.loads(kind):
            if load is not None:
                peaks[load.name] = load.rate, max(load.peak, peaks.get(load.name, (0.0, 0.0))[1])
    needs = {name: rate / peak for name, (rate, peak) in peaks.items() if peak}
    if (need := sum(needs.values())) > MOST_BACKENDS:
        most = max(needs, key=lambda name: needs[name])
        problem = f"need about {need:,.0f} accelerators, {most} alone {needs[most]:,.0f}"
        fix = f"plan for {MOST_BACKENDS:,} at most: lower the rates, or give faster profiles"
        raise InvalidInput("sessions", problem, fix)


def _by_session(unserved: Unserved, asked: ClusterFile) -> list[Unserved]:
    """Return what is not served of each session that shares batches, in the proportion of their rates."""
    sessions = asked.members.get(unserved.name)
    if sessions is None:
        return [unserved]
    rate = sum(one.rate for one in sessions) or 1.0
    return [replace(unserved, name=one.name, rate=unserved.rate * one.rate / rate) for one in sessions]


class PackingComparison:
    """A packing that is the fewest accelerators where they can be found; notes how far off the greedy is."""

    def __init__(self) -> None:
        self.exact: int | None = None
        self.greedy: int | None = None

    def pack(self, loads: Sequence[SessionLoad], rates: Sequence[float], memory: float) -> list[PackedNode]:
        """Return the nodes; see :func:`~tuner.planning.packing.squishy.pack`."""
        nodes = consolidate(loads, rates, memory)
        fewest = fewest_nodes(loads, nodes, memory=memory)
        if fewest is None:
            return nodes
        self.exact, self.greedy = len(fewest), len(pack(loads, rates, memory))
        return fewest if len(fewest) < len(nodes) else nodes
