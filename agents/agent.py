"""The contract of a learning agent: it chooses configurations and learns from their costs.

Agents see numbers only: a load level, configuration numbers of a :class:`~tuner.knobs.KnobSpace`, and
costs from an :class:`~tuner.objective.Objective`. What is safe is the control loop's business; it offers
the agent the configurations that may be chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from tuner.errors import InvalidInput

__all__ = ["Agent", "State", "check_seed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What the agent is told before it chooses (RRL's ``s_t``)."""

    level: int
    """The load level: a point of the logarithmic grid of arrival rates (:class:`LoadLevels`)."""
    configuration: int
    """The number of the configuration in force."""
    rate: float | None = None
    """The arrival rate of the last window, requests/s, where it is known more closely than by its level."""
    observation: np.ndarray | None = field(default=None, compare=False)
    """The environment's observation of the last window, for agents with a network.   # (n,) float32."""


class Agent(Protocol):
    """What learns."""

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Choose the next configuration, exploring as it sees fit.

        Args:
            state: Load level and configuration in force.
            allowed: Numbers of the configurations that may be chosen; None for all.   # (n,) int64
        """
        ...

    def best(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Return the configuration with the least learned cost; never explores, draws no randomness."""
        ...

    def update(self, state: State, configuration: int, cost: float, next_state: State) -> None:
        """Learn from one window: under ``state.level`` the configuration showed ``cost``."""
        ...

    def costs(self, level: int) -> np.ndarray:
        """Learned cost of each configuration at a load level; NaN where nothing is known.   # (size,)."""
        ...

    def save(self, folder: Path) -> None:
        """Write everything learned to a folder, atomically, without pickle.

        Raises:
            StorageError: The folder cannot be written.
        """
        ...

    def close(self) -> None:
        """Stop background work. May be called twice."""
        ...


def check_seed(seed: int) -> int:
    """Return a seed that generators take.

    Raises:
        InvalidInput: It is negative.
    """
    if seed < 0:
        raise InvalidInput("seed", f"{seed} is negative", "use 0 or a positive number")
    return seed
