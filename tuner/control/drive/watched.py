"""What a driver watches: a server, what measures it, and the clock of both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from tuner.adapters.backend import Backend
from tuner.measurement import Measurement
from tuner.profiler.source import Clock

__all__ = ["Measurer", "Watched"]


class Measurer(Protocol):
    """What measures windows: :class:`tuner.profiler.Profiler`."""

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        """Wait ``settle`` seconds, then ``seconds`` at most for a backlog from before, and measure a window.

        It may end before ``seconds`` have passed once ``enough`` requests have come.

        Raises:
            AdapterError: The server, or the source of its metrics, did not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Watched:
    """A server, what measures it, and the clock of both: real time, or that of a simulation."""

    backend: Backend
    profiler: Measurer
    clock: Clock
