"""The intended send times of a load generator, whose arrival process can be replaced while it runs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

import numpy as np

from tuner.workload.arrivals import Arrival

__all__ = ["Timetable"]


class Timetable:
    """Send times on the monotonic clock, one after the other.

    A replacement takes effect at a given moment. Requests that were due before stay due, even if the sender
    is behind; those that were due later are dropped. So a change of the load hides no request.

    Args:
        arrival: The process to begin with.
        generator: Of all randomness.
        start: When it begins, s.
    """

    def __init__(self, arrival: Arrival, generator: np.random.Generator, start: float) -> None:
        self._generator = generator
        self._changes: deque[tuple[float, Arrival]] = deque()
        self._begin(start, arrival)

    @property
    def arrival(self) -> Arrival:
        """The process in force, or the one that will be when its moment has come."""
        return self._changes[-1][1] if self._changes else self._arrival

    @property
    def next(self) -> float:
        """When the next request is to be sent, s; infinite if there is none."""
        return self._next

    def advance(self) -> None:
        """Go to the following request."""
        self._next = self._origin + next(self._times, math.inf)
        self._change()

    def replace(self, arrival: Arrival, at: float) -> None:
        """Follow another process from the moment ``at`` on."""
        self._changes.append((at, arrival))
        self._change()

    def _change(self) -> None:
        while self._changes and self._next >= self._changes[0][0]:
            self._begin(*self._changes.popleft())

    def _begin(self, at: float, arrival: Arrival) -> None:
        self._origin = at
        self._arrival = arrival
        self._times: Iterator[float] = arrival.times(self._generator)
        self._next = at + next(self._times, math.inf)
