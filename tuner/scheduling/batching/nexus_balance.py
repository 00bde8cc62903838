"""Plans of Nexus that could serve more than Algorithm 1's, for whoever can simulate which of them does.

Sessions are packed with more or less room for bursts, and then balanced
(:mod:`tuner.planning.packing.balance`). No rule tells which plan is best: on random mixes of eight
accelerators the balanced ones served from a fifth less to four fifths more. Who has simulated a plan knows
which session loses most, and may try the :func:`moves` that relieve it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from tuner.planning.packing.balance import Shares, balance, roomiest
from tuner.planning.packing.load import LoadArrays, load_arrays
from tuner.planning.packing.squishy import PackedNode
from tuner.scheduling.batching.nexus_plan import Hosted, Placement, loads_of, make_placement, raised_batches
from tuner.scheduling.cluster import ClusterSpec

__all__ = ["balanced_placement", "candidate_placements", "moves"]

BURSTS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)
"""Standard deviations for which the packings have room."""
MOVED = (0.5, 0.25, 0.1, 1.0)
"""Parts of a session on an accelerator that a move takes away."""
RECEIVERS = 3
"""Accelerators that a move is tried to: those whose sessions lose least. Each try is a simulation."""


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

    Nothing moves on a kind of accelerators that hosts a session which it cannot serve in time, or where one
    accelerator hosts more sessions than it can serve at any rate. Without rates nothing moves at all.

    Args:
        spec: Sessions and accelerators.
        rates: requests/s of each session.
        plan: Where they are.
    """
    if not any(rates):
        return plan
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
        if (found := balance(load_arrays(loads), shares)) is None:
            continue
        for place, node, held in zip(own, found.nodes, found.shares, strict=True):
            rows[place] = _row(spec, kind, node, held)
    return Placement(tuple(rows))


def moves(spec: ClusterSpec, plan: Placement, strain: Sequence[float]) -> Iterator[Placement]:
    """Yield plans in which an accelerator of the session that loses most has less to do, and another more.

    Args:
        spec: Sessions and accelerators.
        plan: Where the sessions are.
        strain: What each session loses of its requests, relative to what it may.   # (M,)
    """
    worst = int(np.argmax(strain))
    strains = [max((strain[one.session] for one in row), default=0.0) for row in plan.backends]
    givers = [place for place, row in enumerate(plan.backends) if worst in {one.session for one in row}]
    arrays = {kind: _arrays_of(spec, kind) for kind in {spec.kinds[giver] for giver in givers}}
    for giver in givers:
        kind, row = spec.kinds[giver], plan.backends[giver]
        if (loads := arrays[kind]) is None:
            continue
        others = [place for place, each in enumerate(spec.kinds) if each == kind and place != giver]
        receivers = sorted(others, key=strains.__getitem__)[:RECEIVERS]
        worst_first = sorted(row, key=lambda each: each.session != worst)
        parts = [part for part in MOVED if part < 1 or len(row) > 1]  # no accelerator is emptied
        for part, one, receiver in product(parts, worst_first, receivers):
            moved = _moved(spec, loads, plan, (giver, receiver), (one.session, one.rate * part))
            if moved is not None:
                yield moved


def _moved(
    spec: ClusterSpec, loads: LoadArrays, plan: Placement, way: tuple[int, int], moved: tuple[int, float]
) -> Placement | None:
    """Return a plan in which a session's rate, in requests/s, went from one accelerator to another.

    None if one of them could not serve at any rate what it would have.
    """
    (giver, receiver), (session, rate) = way, moved
    rows = list(plan.backends)
    rest: Shares = {one.session: one.rate for one in rows[giver]}
    received: Shares = {one.session: one.rate for one in rows[receiver]}
    rest[session] -= rate
    if rest[session] <= 0:
        del rest[session]
    received[session] = received.get(session, 0.0) + rate
    for place, shares in ((giver, rest), (receiver, received)):
        if (node := roomiest(loads, shares)) is None:
            return None
        rows[place] = _row(spec, spec.kinds[place], node, shares)
    return Placement(tuple(rows))


def _arrays_of(spec: ClusterSpec, kind: int) -> LoadArrays | None:
    """Return the sessions on a kind of accelerator; None if one of them cannot be served there in time."""
    loads = loads_of(spec, kind)
    return load_arrays(loads) if all(load.fits for load in loads) else None


def _row(spec: ClusterSpec, kind: int, node: PackedNode, shares: Shares) -> tuple[Hosted, ...]:
    """Return what an accelerator hosts, with the batches of a node raised as far as SLOs allow."""
    members = [(load, size) for (load, _), size in zip(node.loads, node.batches, strict=True)]
    sizes = raised_batches(spec.sessions, kind, members)
    return tuple(Hosted(load, size, rate) for (load, rate), size in zip(shares.items(), sizes, strict=True))
