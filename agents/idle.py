"""The agent of a daemon that only watches: it leaves everything as it is and learns nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tuner.agents.agent import State
from tuner.knobs import KnobSpace

__all__ = ["Idle"]


class Idle:
    """Always chooses the configuration in force.

    Args:
        space: The configurations.
    """

    def __init__(self, space: KnobSpace) -> None:
        self._size = space.size

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:  # noqa: ARG002
        """Return the configuration in force."""
        return state.configuration

    def best(self, state: State, allowed: np.ndarray | None = None) -> int:  # noqa: ARG002
        """Return the configuration in force."""
        return state.configuration

    def update(self, state: State, configuration: int, cost: float, next_state: State) -> None:
        """Learn nothing."""

    def costs(self, level: int) -> np.ndarray:  # noqa: ARG002
        """Know nothing.   # (size,) NaN."""
        return np.full(self._size, np.nan)

    def save(self, folder: Path) -> None:
        """There is nothing to keep."""

    def close(self) -> None:
        """There is nothing to stop."""
