"""What is learned of a target under its present load: what every configuration costs, to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tuner.knobs import KnobSpace

if TYPE_CHECKING:
    from tuner.control.decide.loop import ControlLoop

__all__ = ["CostMap", "cost_map"]

LARGEST = 5000
"""Configurations of a space that is not drawn any longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CostMap:
    """Costs under one load level."""

    rate: float
    """In the middle of the level, requests/s."""
    space: KnobSpace
    costs: np.ndarray
    """By number of the configuration; NaN where nothing is known.   # (size,)"""
    windows: dict[int, int]
    """How many windows ran each configuration, where any did."""


def cost_map(loop: ControlLoop) -> CostMap | None:
    """Return what a loop has learned for the present load; None before the first window and of large spaces.

    What was tried shows its measured mean cost, the rest what the agent infers.
    """
    if loop.level is None or loop.space.size > LARGEST:
        return None
    costs = np.array(loop.agent.costs(loop.level), dtype=np.float64)
    trials = loop.memory.at(loop.level).trials
    for index, trial in trials.items():
        costs[index] = trial.cost
    windows = {index: trial.windows for index, trial in trials.items()}
    return CostMap(rate=loop.levels.rate(loop.level), space=loop.space, costs=costs, windows=windows)
