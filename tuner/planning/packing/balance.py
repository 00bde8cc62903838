"""Balance: moves parts of sessions between a given number of accelerators until all have room for bursts.

Squishy bin packing plans for as many requests in each cycle as come on average, and a session that does not
fill an accelerator gets one only (Nexus, section 6.1). Where accelerators are given, the one with the
shortest SLOs then loses requests in bursts while others have room. Here a node counts by its *room*: by how
much all of its rates could grow until it no longer serves them with the bursts that 99 % of independent
arrivals stay within. The node with the least room gives the part of one of its sessions to another node that
leaves both with the most; this is repeated until no move helps. Batches and cycles are chosen afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tuner.planning.packing.balance_kernel import room_for, with_bursts
from tuner.planning.packing.kernel import saturate
from tuner.planning.packing.load import LoadArrays
from tuner.planning.packing.squishy import PackedNode, best_node, make_node

__all__ = ["Balanced", "Shares", "balance", "roomiest"]

SIGMAS = 2.33
"""Standard deviations that 99 % of a normal distribution stay within."""
PARTS = (1.0, 0.5, 0.25, 0.1, 0.05)
"""Of a session on a node, that may move."""
MORE = 1.002
"""Times as much room must be left for a move to be worth it."""
RECEIVERS = 8
"""Nodes that a part may move to: those with the most room."""
MOST_MOVES = 300

Shares = dict[int, float]
"""Of a node: requests/s by load."""


class Balanced(NamedTuple):
    """Nodes after all moves."""

    shares: list[Shares]
    room: float
    """By how much all rates could grow."""
    nodes: list[PackedNode]
    """That serve them so grown, with their bursts."""


class _Move(NamedTuple):
    room: float
    receiver: int
    rest: Shares
    received: Shares
    rooms: tuple[float, float]


def balance(loads: LoadArrays, shares: Sequence[Shares]) -> Balanced | None:
    """Return the nodes after parts of sessions have moved; none has no session.

    None if a node serves what it has at no rate, and no move changes that.

    Args:
        loads: Their rates are not read; each is in time in batches of 1.
        shares: Of every node, at least one load.
    """
    cost = 1.0 / saturate(loads)[1]
    nodes = [dict(one) for one in shares]
    rooms = [_room(loads, cost, one) for one in nodes]
    for _ in range(MOST_MOVES):
        least = int(np.argmin(rooms))
        move = max(_moves(loads, cost, nodes, rooms, least), key=lambda one: one.room, default=None)
        if move is None:
            break
        nodes[least], nodes[move.receiver] = move.rest, move.received
        rooms[least], rooms[move.receiver] = move.rooms
    room = min(rooms)
    return Balanced(nodes, room, [_node(loads, cost, one, room) for one in nodes]) if room > 0 else None


def roomiest(loads: LoadArrays, shares: Shares) -> PackedNode | None:
    """Return a node for given shares, with as much room for bursts as it can have; None if it has none."""
    cost = 1.0 / saturate(loads)[1]
    room = _room(loads, cost, shares)
    return _node(loads, cost, shares, room) if room > 0 else None


def _room(loads: LoadArrays, cost: np.ndarray, shares: Shares) -> float:
    members, rates = np.array(list(shares), np.int64), np.array(list(shares.values()), float)
    return float(room_for(loads, cost, members, rates, SIGMAS))


def _moves(
    loads: LoadArrays, cost: np.ndarray, nodes: list[Shares], rooms: list[float], giver: int
) -> Iterator[_Move]:
    """Yield the moves from a node after which both have more room than it has now."""
    enough = MORE * rooms[giver]
    roomiest = sorted(range(len(nodes)), key=lambda node: -rooms[node])[:RECEIVERS]
    receivers = [node for node in roomiest if rooms[node] > enough]
    for load, rate in nodes[giver].items():
        for part in PARTS if len(nodes[giver]) > 1 else PARTS[1:]:
            rest = {**nodes[giver], load: rate * (1 - part)}
            if part == 1:
                del rest[load]
            left = _room(loads, cost, rest)
            for node in receivers if left > enough else ():
                received = {**nodes[node], load: nodes[node].get(load, 0.0) + rate * part}
                room = _room(loads, cost, received)
                if room > enough:
                    yield _Move(min(left, room), node, rest, received, (left, room))


def _node(loads: LoadArrays, cost: np.ndarray, shares: Shares, room: float) -> PackedNode:
    members = np.array(list(shares), np.int64)
    rates = with_bursts(loads, cost, members, room * np.array(list(shares.values())), SIGMAS)
    grown = list(zip(members.tolist(), rates.tolist(), strict=True))
    found = best_node(loads, grown)
    if found is None:  # at the edge of what is served
        shortest = float(loads.latency[loads.start[members] + 1].max())
        found = make_node(loads, shortest, grown)
    return found
