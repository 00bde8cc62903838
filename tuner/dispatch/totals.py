"""What the dispatcher did since its start, in sums, for whoever tunes it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tuner.dispatch.request import Status

__all__ = ["BOUNDS", "SessionTotals", "Totals"]

BOUNDS = tuple(float(bound) for bound in np.geomspace(0.0005, 60, 48))
"""Bounds of the histogram of latencies, s."""
LARGEST = 1000
"""Items of a request; larger ones count as that."""


@dataclass
class SessionTotals:
    """Of one session."""

    arrivals: int = 0
    in_time: int = 0
    """Requests that were answered by their deadlines."""
    late: int = 0
    """Requests that were answered later, by frontends that send them themselves."""
    batches: int = 0
    items: int = 0
    """Of all batches."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Requests that were refused, by the status."""
    sizes: Counter[int] = field(default_factory=Counter)
    """Requests that were taken, by their items."""

    def to_json(self) -> dict[str, Any]:
        """Return all of it."""
        return {**vars(self), "dropped": dict(self.dropped), "sizes": dict(self.sizes)}


class Totals:
    """Counts what happens."""

    def __init__(self) -> None:
        self.requests = 0
        self.failures = 0
        self.latency = 0.0
        self.inferences = 0
        self.compute = 0.0
        """s that requests were executed, summed over them, like the latency."""
        self._latencies = [0] * (len(BOUNDS) + 1)
        self._counts: dict[int, int] = {}
        self._seconds: dict[int, float] = {}
        self._sessions: defaultdict[str, SessionTotals] = defaultdict(SessionTotals)

    def of(self, session: str) -> SessionTotals:
        """Return the totals of a session."""
        return self._sessions[session]

    def forget(self, session: str) -> None:
        """Forget the totals of a session; the sums over all keep what it did."""
        self._sessions.pop(session, None)

    def taken(self, session: str, items: int) -> None:
        """A request waits for a batch."""
        self.of(session).sizes[min(items, LARGEST)] += 1

    def ended(self, session: str, status: Status | None, seconds: float, late: bool) -> None:
        """A request was answered, or refused."""
        found = self.of(session)
        if status is not None:
            self.failures += 1
            found.dropped[status.value] += 1
            return
        found.late += late
        found.in_time += not late
        self.requests += 1
        self.latency += seconds
        self._latencies[bisect_left(BOUNDS, seconds)] += 1

    def executed(self, session: str, requests: int, items: int, seconds: float) -> None:
        """A batch of so many requests, with so many items in all, was executed."""
        found = self.of(session)
        found.batches += 1
        found.items += items
        self.inferences += items
        self.compute += requests * seconds
        self._counts[items] = self._counts.get(items, 0) + 1
        self._seconds[items] = self._seconds.get(items, 0.0) + seconds

    def to_json(self) -> dict[str, Any]:
        """Return the sums over all sessions."""
        sizes = range(max(self._counts, default=0) + 1)
        return {
            "requests": self.requests,
            "failures": self.failures,
            "latency": self.latency,
            "compute": self.compute,
            "inferences": self.inferences,
            "batch_counts": [self._counts.get(size, 0) for size in sizes],
            "batch_seconds": [self._seconds.get(size, 0.0) for size in sizes],
            "latencies": list(self._latencies),
        }
