"""Load levels: what a server is up against, on a grid. They are the states of the learning agents.

A level stands for an arrival rate on a logarithmic grid, and for how much of the machine's capacity foreign
processes take: one number for both, so that whatever is kept by load level is kept apart by neighbours, too.

Why a logarithmic grid: costs depend on how busy the server is, and a tenth more load matters alike at any
rate. Why hysteresis: a rate that wavers at the border of two levels would split what is learned between them,
so a level is left only when the rate is clearly inside another one.

Why the share of foreign processes and not how long the server waits for a core: waiting depends on the
configuration as well, and a state that the choice itself changes would compare no two configurations. Why in
octaves of the capacity left: a neighbour that leaves less than 7/10 of a machine matters, one that takes a
tenth hardly does, and a finer grid would have everything learned again for each of many small neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tuner.agents.rules import check_rules

__all__ = [
    "SPAN",
    "LoadLevels",
    "nearest_level",
    "neighbours",
    "octaves_taken",
    "same_neighbours",
    "without_neighbours",
]

SPAN = 1000
"""Levels of one share of foreign processes: more than there are rates, so that the number holds both."""
HIGHEST = 1e9
"""Requests/s that no server gets; the levels up to there must fit into :data:`SPAN`."""
LEAST_LEFT = 1 / 64
"""Smallest share of the capacity that counts as left."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadLevels:
    """The grid: level k stands for rates near ``ratio ** k`` requests/s on a machine of the server's own.

    Where foreign processes leave 2 ** -n of the machine's capacity, it is ``k + 1000 * n``.
    """

    ratio: float = 1.25
    """Rate of one level over that of the level below."""
    hysteresis: float = 0.25
    """How far beyond the border, in levels, a rate must be before the level changes."""
    lowest: float = 0.1
    """Rates below this count as this one, requests/s."""

    def __post_init__(self) -> None:
        check_rules(
            self,
            ratio=(1 < self.ratio < math.inf, "above 1"),
            hysteresis=(0 <= self.hysteresis < 0.5, "at least 0 and below 0.5"),
            lowest=(0 < self.lowest < math.inf, "above 0"),
        )
        # Beyond half a span a rate would read as another one beside foreign processes.
        check_rules(
            self,
            ratio=(self.level(HIGHEST) < SPAN / 2, f"larger, for less than 500 levels up to {HIGHEST:g}/s"),
            lowest=(abs(self.level(self.lowest)) < SPAN / 2, "within 500 levels of 1 request/s"),
        )

    def level(self, rate: float, previous: int | None = None, *, foreign: float = math.nan) -> int:
        """Return the level of a window, staying at ``previous`` near its border.

        Args:
            rate: Requests/s.
            previous: The level before.
            foreign: Share of the machine's capacity that foreign processes took; NaN: as before, or none.
        """
        load = before = None
        if previous is not None:
            before = neighbours(previous)
            load = previous - SPAN * before
        taken = before or 0
        if not math.isnan(foreign):
            taken = self._nearest(octaves_taken(foreign), before)
        return self._nearest(math.log(max(rate, self.lowest)) / math.log(self.ratio), load) + SPAN * taken

    def rate(self, level: int) -> float:
        """Return the rate in the middle of a level, requests/s."""
        return float(self.ratio ** (level - SPAN * neighbours(level)))

    def bounds(self, level: int) -> tuple[float, float]:
        """Return the least and the greatest rate that are nearest to a level, requests/s."""
        half = math.sqrt(self.ratio)
        return self.rate(level) / half, self.rate(level) * half

    def _nearest(self, position: float, previous: int | None) -> int:
        if previous is not None and abs(position - previous) <= 0.5 + self.hysteresis:
            return previous
        return round(position)


def octaves_taken(foreign: float) -> float:
    """Return how often foreign processes that take a share of a machine halve its capacity; NaN for NaN."""
    return -math.log2(min(max(1.0 - foreign, LEAST_LEFT), 1.0)) if not math.isnan(foreign) else math.nan


def neighbours(level: int) -> int:
    """Return how often foreign processes halve the capacity of the machine at a level."""
    return round(level / SPAN)


def without_neighbours(levels: np.ndarray) -> np.ndarray:
    """Return the levels of the same rates on a machine of the server's own.   # (n,)."""
    return np.asarray(levels - SPAN * np.round(levels / SPAN))


def same_neighbours(one: int, other: int) -> bool:
    """Whether foreign processes take as much at one level as at another."""
    return neighbours(one) == neighbours(other)


def nearest_level(levels: Iterable[int], level: int) -> int:
    """Return the level nearest to another one, of two as near the lower. There must be one at least.

    The load counts before the neighbours, for it matters more.
    """

    def distance(other: int) -> tuple[int, int, int]:
        apart = neighbours(other) - neighbours(level)
        return abs(other - level - SPAN * apart), abs(apart), other

    return min(levels, key=distance)
