"""What a driver watches: a server, what measures it, and the clock of both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from tuner.adapters.backend import Backend
from tuner.measurement import Measurement
from tuner.profiler.source import Clock

__all__ = ["Measurer", "Watched", "longest"]


class Measurer(Protocol):
    """What measures windows: :class:`tuner.profiler.Profiler`."""

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        """Wait ``settle`` seconds, then ``seconds`` at most for a backlog from before, and measure a window.

        It may end before ``seconds`` have passed once ``enough`` requests have come.

        Raises:
            AdapterError: The server, or the source of its metrics, did not answer.
        """
        ...


def longest(seconds: float, settle: float) -> float:
    """Return how long a :class:`Measurer` may take for a window, s: after a change a backlog comes first.

    Args:
        seconds: Length of the window, s.
        settle: Time before it, s.
    """
    return settle + (2 * seconds if settle > 0 else seconds)


@dataclass(frozen=True, slots=True)
class Watched:
    """A server, what measures it, and the clock of both: real time, or that of a simulation."""

    backend: Backend
    profiler: Measurer
    clock: Clock
