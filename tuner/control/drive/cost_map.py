"""The cost map: what each configuration of a target costs under the present load, for people to look at."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tuner.agents.load_levels import neighbours
from tuner.knobs import KnobSpace

if TYPE_CHECKING:
    from tuner.control.decide.loop import ControlLoop

__all__ = ["CostMap", "ShownLevel", "cost_map"]

LARGEST = 5000
"""Most configurations of a space that has a cost map."""
LATELY, AGREEING = 5, 4
"""Of the last windows, how many must agree on another load before its map is shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CostMap:
    """Costs under one load level."""

    rate: float
    """The load in the middle of the level, requests/s."""
    bounds: tuple[float, float]
    """The least and the greatest load that count as this level, requests/s."""
    foreign_share: float
    """About what share of the machine's capacity foreign processes take at this level."""
    space: KnobSpace
    costs: np.ndarray
    """Cost by number of the configuration; NaN where nothing is known.   # (size,)"""
    windows: dict[int, int]
    """Number of windows by number of the configuration, for those that ran."""


class ShownLevel:
    """The load level whose costs people are shown: that of nearly all of the last windows.

    A load between two levels would otherwise show now one map, now the other. A load that is more than one
    level away is shown at once.
    """

    def __init__(self) -> None:
        self._lately: deque[int] = deque(maxlen=LATELY)
        self._level: int | None = None

    def follow(self, level: int | None) -> int | None:
        """Take the level of the newest window; return the one to show, None before the first."""
        if level is None:
            return self._level
        if self._level is None or abs(level - self._level) > 1:
            self._lately.clear()
            self._level = level
        self._lately.append(level)
        if self._lately.count(level) >= AGREEING:
            self._level = level
        return self._level


def cost_map(loop: ControlLoop, level: int | None) -> CostMap | None:
    """Return the cost map of a loop at a load level; None before the first window and for large spaces.

    A configuration that was tried has its measured mean cost, the others have what the agent infers.
    """
    if level is None or loop.space.size > LARGEST:
        return None
    costs = np.array(loop.agent.costs(level), dtype=np.float64)
    records = loop.memory.at(level).configurations
    for index, record in records.items():
        costs[index] = record.cost
    return CostMap(
        rate=loop.levels.rate(level),
        bounds=loop.levels.bounds(level),
        foreign_share=1 - 0.5 ** neighbours(level),
        space=loop.space,
        costs=costs,
        windows={index: record.windows for index, record in records.items()},
    )
