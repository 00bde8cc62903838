"""The cost map: what each configuration of a target costs under the present load, for people to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tuner.knobs import KnobSpace

if TYPE_CHECKING:
    from tuner.control.decide.loop import ControlLoop

__all__ = ["CostMap", "cost_map"]

LARGEST = 5000
"""Most configurations of a space that has a cost map."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CostMap:
    """Costs under one load level."""

    rate: float
    """The load in the middle of the level, requests/s."""
    space: KnobSpace
    costs: np.ndarray
    """Cost by number of the configuration; NaN where nothing is known.   # (size,)"""
    windows: dict[int, int]
    """Number of windows by number of the configuration, for those that ran."""


def cost_map(loop: ControlLoop) -> CostMap | None:
    """Return the cost map of a loop; None before the first window and for large spaces.

    A configuration that was tried has its measured mean cost, the others have what the agent infers.
    """
    if loop.level is None or loop.space.size > LARGEST:
        return None
    costs = np.array(loop.agent.costs(loop.level), dtype=np.float64)
    records = loop.memory.at(loop.level).configurations
    for index, record in records.items():
        costs[index] = record.cost
    windows = {index: record.windows for index, record in records.items()}
    return CostMap(rate=loop.levels.rate(loop.level), space=loop.space, costs=costs, windows=windows)
