"""The load that a server is under, over all windows that may belong to it; one that comes back is known."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from tuner.agents.load_levels import LoadLevels, octaves_taken
from tuner.measurement import Measurement
from tuner.profiler.window import CHANCE

__all__ = ["Load", "Loads"]

FADING = 0.9
"""How much of a window's weight is left after the next one: loads change slowly, too."""
APART = 0.5
"""Octaves by which what foreign processes leave of the machine may differ between windows of one load."""
REMEMBERED = 16
"""Loads that may come back; the oldest is forgotten first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What a server is up against, over all windows that differed by no more than chance explains."""

    rate: float = 0.0
    """requests/s"""
    foreign: float = math.nan
    """Share of the machine that foreign processes take; NaN if not known."""
    seconds: float = 0.0
    """Length of these windows, of which old ones count less."""
    windows: int = 0
    level: int = 0
    """The load level; means nothing before the first window."""

    def explains(self, m: Measurement) -> bool:
        """Whether a window differs from this load by no more than chance explains."""
        expected = self.rate * m.seconds
        dispersion = max(1.0, m.burstiness)  # 1 where it is not known
        deviation = math.sqrt(dispersion * expected * (1 + m.seconds / self.seconds)) if self.seconds else 0.0
        moved = abs(m.arrival_rate * m.seconds - expected) > CHANCE * deviation
        apart = abs(octaves_taken(m.foreign_share) - octaves_taken(self.foreign))
        return not (moved or apart > APART)  # NaN is not above

    def joined(self, m: Measurement, levels: LoadLevels, previous: int | None) -> Load:
        """Return the load with one more window.

        Args:
            m: The window.
            levels: The grid of load levels.
            previous: The level of the window before; counts if the load has none of its own.
        """
        seconds = FADING * self.seconds + m.seconds
        share = m.seconds / seconds
        rate = self.rate + (m.arrival_rate - self.rate) * share
        known = [one for one in (self.foreign, m.foreign_share) if not math.isnan(one)]
        foreign = known[0] + (known[-1] - known[0]) * share if known else math.nan
        level = levels.level(rate, self.level if self.windows else previous, foreign=foreign)
        return Load(rate=rate, foreign=foreign, seconds=seconds, windows=self.windows + 1, level=level)


class Loads:
    """The present load of a server, and those that it had before.

    A window of few requests says little of the rate. If the load is one of those before, as far as chance can
    tell, it is that one, and what is known of it counts from the first window on.

    Args:
        levels: The grid of load levels.
    """

    def __init__(self, levels: LoadLevels) -> None:
        self.levels = levels
        self.present = Load()
        self._past: deque[Load] = deque(maxlen=REMEMBERED)

    def after(self, m: Measurement, previous: int | None) -> Load:
        """Return the load after another window; one that has moved is one of before, or begins with it.

        Args:
            m: The window.
            previous: The load level before it.
        """
        return self._found(m).joined(m, self.levels, previous)

    def observe(self, m: Measurement, previous: int | None) -> None:
        """Take in another window: see :meth:`after`."""
        found = self._found(m)
        if found is not self.present:
            if found in self._past:
                self._past.remove(found)
            if self.present.windows > 1:  # the window in which a load moves shows one that there never was
                self._past.append(self.present)
        self.present = found.joined(m, self.levels, previous)

    def _found(self, m: Measurement) -> Load:
        """Return the load that a window belongs to: the present one if it may, else the nearest of before."""
        if self.present.explains(m):
            return self.present
        alike = [load for load in self._past if load.explains(m)]
        return min(alike, key=lambda load: abs(load.rate - m.arrival_rate), default=Load())
