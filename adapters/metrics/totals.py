"""Totals that never fall, although a server's own begin at 0 again when it reloads a model or restarts.

A server counts by part: a version of a model, or the whole process. If the numbers of a part have fallen, or
the part is gone, the server has reset it, and what it had counted before is carried over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

__all__ = ["Key", "MonotonicTotals", "Reading"]

Key = tuple[str, int]
"""What is counted, and for which batch size or bucket (0 where there are none)."""
Reading = Mapping[Key, int]
"""Numbers of one part as the server reports them, each of which only grows until a reset."""


class MonotonicTotals:
    """Adds readings up over resets; the sums begin at 0 with the first reading.

    Args:
        first: The readings when the adapter was opened, by part.
    """

    def __init__(self, first: Mapping[str, Reading]) -> None:
        self.restarts = 0
        """How often the server began at 0 again."""
        self._last = dict(first)
        self._carried: Counter[Key] = Counter()
        for reading in first.values():
            self._carried.subtract(reading)

    def add(self, readings: Mapping[str, Reading]) -> None:
        """Add the latest readings, by part."""
        reset = [part for part, last in self._last.items() if _fell(last, readings.get(part, {}))]
        for part in reset:
            self._carried.update(self._last[part])
        self.restarts += bool(reset)
        self._last = dict(readings)

    def sums(self) -> Counter[Key]:
        """Return what was counted since the first reading."""
        totals = self._carried.copy()
        for reading in self._last.values():
            totals.update(reading)
        return totals


def _fell(last: Reading, now: Reading) -> bool:
    return any(now.get(key, 0) < value for key, value in last.items())
