"""Plans of Nexus that could serve more than Algorithm 1's, for whoever can simulate which of them does.

Sessions are packed with more or less room for bursts, and then balanced
(:mod:`tuner.planning.packing.balance`). No rule tells which plan is best: on random mixes of eight
accelerators the balanced ones served from a fifth less to four fifths more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.planning.packing.balance import balance
from tuner.planning.packing.load import load_arrays
from tuner.scheduling.batching.nexus_plan import Hosted, Placement, loads_of, make_placement, raised_batches
from tuner.scheduling.cluster import ClusterSpec

__all__ = ["balanced_placement", "candidate_placements"]

BURSTS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)
"""Standard deviations for which the packings have room."""


def candidate_placements(spec: ClusterSpec, rates: Sequence[float]) -> Iterator[Placement]:
    """Yield different plans, that of Algorithm 1 first."""
    known: set[Placement] = set()
    for bursts in BURSTS:
        packed = make_placement(spec, rates, bursts=bursts)
        for plan in (packed, balanced_placement(spec, rates, packed)):
            if plan not in known:
                known.add(plan)
                yield plan


def balanced_placement(spec: ClusterSpec, rates: Sequence[float], plan: Placement) -> Placement:
    """Return a plan in which parts of sessions have moved to where there is room for bursts.

    A kind of accelerators stays as it is if it hosts a session that it cannot serve in time.

    Args:
        spec: Sessions and accelerators.
        rates: requests/s of each session.
        plan: Where they are.
    """
    rows = list(plan.backends)
    placed = [0.0] * len(spec.sessions)
    for row in rows:
        for share in row:
            placed[share.session] += share.rate
    for kind in sorted(set(spec.kinds)):
        own = [place for place, each in enumerate(spec.kinds) if each == kind and rows[place]]
        loads = loads_of(spec, kind)
        if not own or not all(loads[share.session].fits for place in own for share in rows[place]):
            continue
        shares = [
            {one.session: rates[one.session] * one.rate / placed[one.session] for one in rows[place]}
            for place in own
        ]
        found = balance(load_arrays(loads), shares)
        for place, node, held in zip(own, found.nodes, found.shares, strict=True):
            members = [(load, size) for (load, _), size in zip(node.loads, node.batches, strict=True)]
            sizes = raised_batches(spec.sessions, kind, members)
            rows[place] = tuple(
                Hosted(load, size, rate) for (load, rate), size in zip(held.items(), sizes, strict=True)
            )
    return Placement(tuple(rows))
