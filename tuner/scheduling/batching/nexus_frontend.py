"""The frontends of Nexus: each sends requests to the backends by deficit round robin, on its own.

A frontend goes through the backends that host a session in a circle. At each visit the backend earns its
quantum, its planned rate over the highest of the session's backends; when it has earned a whole request it
gets the next one, and only one, for a quantum is at most one. With equal rates that is plain round robin. No
frontend knows what the others do, which is what makes load uneven when there are several (Symphony, section
3, Table 2).

A frontend begins its circle at a place of its own, spread over the backends. The next receiver is chosen
ahead, so that a request that finds no room leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat
from tuner.rounding import ROUNDING
from tuner.scheduling.vocabulary import records

__all__ = ["Frontends", "make_frontends", "move_on", "receiver"]

ROUTE = np.dtype([("first", "i8"), ("count", "i8")], align=True)  # entries of a session


class Frontends(NamedTuple):
    """What the frontends know; entry e is one backend of one session. Modified in place: the last two."""

    routes: np.ndarray  # (M,) ROUTE, entries of the session
    queue: np.ndarray  # (E,) where the entry's requests wait
    quantum: np.ndarray  # (E,) requests earned per visit, at most 1
    chosen: np.ndarray  # (F, M) entry that gets the frontend's next request
    deficit: np.ndarray  # (F, E) requests earned and not yet sent


def make_frontends(rates: Sequence[Sequence[tuple[int, float]]], frontends: int) -> Frontends:
    """Return frontends that have sent nothing.

    Args:
        rates: Per session the queues of its backends, at least one, each with its planned rate, more than 0.
        frontends: How many.
    """
    routes = records(len(rates), ROUTE)
    entries: list[tuple[int, float]] = []
    for session, row in enumerate(rates):
        routes[session] = (len(entries), len(row))
        highest = max(rate for _, rate in row)
        entries += [(queue, rate / highest) for queue, rate in row]
    made = Frontends(
        routes,
        np.array([queue for queue, _ in entries], np.int64),
        np.array([quantum for _, quantum in entries]),
        np.zeros((frontends, len(rates)), np.int64),
        np.zeros((frontends, len(entries))),
    )
    for frontend in range(frontends):
        for session, (first, count) in enumerate(routes.tolist()):
            made.chosen[frontend, session] = first + (frontend * count // frontends - 1) % count
            _visit(made, frontend, session)
    return made


@njit_flat
def receiver(frontends: Frontends, source: int, session: int) -> int:
    """Return the queue that gets the next request; sources beyond the last frontend share theirs."""
    frontend = source % frontends.chosen.shape[0]
    return int(frontends.queue[frontends.chosen[frontend, session]])


@njit_flat
def move_on(frontends: Frontends, source: int, session: int) -> None:
    """The next request was sent: choose the backend after it. ``frontends`` is modified in place."""
    frontend = source % frontends.chosen.shape[0]
    entry = frontends.chosen[frontend, session]
    frontends.deficit[frontend, entry] -= 1.0
    _visit(frontends, frontend, session)


@njit_flat
def _visit(frontends: Frontends, frontend: int, session: int) -> None:
    """Visit the backends after the chosen one until one has earned a request."""
    first, count = frontends.routes[session].first, frontends.routes[session].count
    entry = frontends.chosen[frontend, session]
    while True:
        entry = entry + 1 if entry + 1 < first + count else first
        frontends.deficit[frontend, entry] += frontends.quantum[entry]
        if frontends.deficit[frontend, entry] >= 1.0 - ROUNDING:  # quanta such as 0.1 are not exact
            frontends.chosen[frontend, session] = entry
            return
