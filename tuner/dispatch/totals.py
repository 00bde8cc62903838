"""What the dispatcher did since its start, in sums, for whoever tunes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.dispatch.request import Status

__all__ = ["BOUNDS", "Totals"]

BOUNDS = tuple(float(bound) for bound in np.geomspace(0.0005, 60, 48))
"""Bounds of the histogram of latencies, s."""


class Totals:
    """Counts what happens."""

    def __init__(self) -> None:
        self.requests = 0
        self.failures = 0
        self.latency = 0.0
        self.inferences = 0
        self.compute = 0.0
        self._latencies = np.zeros(len(BOUNDS) + 1, np.int64)
        self._counts: dict[int, int] = {}
        self._seconds: dict[int, float] = {}

    def ended(self, status: Status | None, seconds: float) -> None:
        """A request was answered, or refused."""
        if status is not None:
            self.failures += 1
            return
        self.requests += 1
        self.latency += seconds
        self._latencies[np.searchsorted(BOUNDS, seconds)] += 1

    def executed(self, items: int, seconds: float) -> None:
        """A batch was executed."""
        self.inferences += items
        self.compute += items * seconds
        self._counts[items] = self._counts.get(items, 0) + 1
        self._seconds[items] = self._seconds.get(items, 0.0) + seconds

    def to_json(self) -> dict[str, Any]:
        """Return all of it."""
        sizes = range(max(self._counts, default=0) + 1)
        return {
            "requests": self.requests,
            "failures": self.failures,
            "latency": self.latency,
            "compute": self.compute,
            "inferences": self.inferences,
            "batch_counts": [self._counts.get(size, 0) for size in sizes],
            "batch_seconds": [self._seconds.get(size, 0.0) for size in sizes],
            "latencies": self._latencies.tolist(),
        }
