"""Load levels: the arrival rate on a logarithmic grid, the state of the learning agents.

Why a logarithmic grid: costs depend on how busy the server is, and a tenth more load matters alike at any
rate. Why hysteresis: a rate that wavers at the border of two levels would split what is learned between them,
so a level is left only when the rate is clearly inside another one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["LoadLevels", "nearest_level"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadLevels:
    """The grid: level k stands for rates near ``ratio ** k`` requests/s."""

    ratio: float = 1.25
    """Rate of one level over that of the level below."""
    hysteresis: float = 0.25
    """How far beyond the border, in levels, a rate must be before the level changes."""
    lowest: float = 0.1
    """Rates below this count as this one, requests/s."""

    def __post_init__(self) -> None:
        if not self.ratio > 1 or not 0 <= self.hysteresis < 0.5:
            raise ValueError(f"`ratio > 1` and `0 <= hysteresis < 0.5` must hold, but got {self}")

    def level(self, rate: float, previous: int | None = None) -> int:
        """Return the level of a rate in requests/s, staying at ``previous`` near its border."""
        position = math.log(max(rate, self.lowest)) / math.log(self.ratio)
        if previous is not None and abs(position - previous) <= 0.5 + self.hysteresis:
            return previous
        return round(position)

    def rate(self, level: int) -> float:
        """Return the rate in the middle of a level, requests/s."""
        return float(self.ratio**level)


def nearest_level(levels: Iterable[int], level: int) -> int:
    """Return the level nearest to another one, of two as near the lower. There must be one at least."""
    return min(levels, key=lambda other: (abs(other - level), other))
