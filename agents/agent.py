"""The contract of a learning agent: it chooses configurations and learns from their costs.

Agents see numbers only: a load level, configuration numbers of a :class:`~tuner.knobs.KnobSpace`, and
costs from an :class:`~tuner.objective.Objective`. The control loop decides what is safe, and offers the agent
the configurations that it may choose.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from tuner.errors import InvalidInput

__all__ = ["Agent", "Explains", "KnowsLoads", "State", "check_cost", "check_seed", "costs_at"]


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What the agent knows before it chooses (RRL's ``s_t``)."""

    level: int
    """The load level: its number on the grid of :class:`~tuner.agents.load_levels.LoadLevels`."""
    configuration: int
    """The number of the configuration in force."""
    rate: float | None = None
    """The arrival rate of the last window, requests/s, where it is known more closely than by its level."""
    seen: Mapping[str, float] | None = field(default=None, compare=False)
    """What the last window showed, in which ``configuration`` ran: by the names of its quantities
    (:meth:`~tuner.measurement.Measurement.figures`), for agents that know what they mean."""
    observation: np.ndarray | None = field(default=None, compare=False)
    """The environment's observation of the last window, for agents with a network.   # (n,) float32."""


class Agent(Protocol):
    """Chooses configurations and learns from what they cost."""

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Choose the next configuration, exploring as it sees fit.

        Args:
            state: Load level and configuration in force.
            allowed: Numbers of the configurations that may be chosen; None for all.   # (n,) int64

        Raises:
            ValueError: Nothing is allowed.
        """

    def best(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Return the configuration with the least learned cost; never explores, draws no randomness.

        Raises:
            ValueError: Nothing is allowed.
        """

    def update(self, state: State, configuration: int, cost: float, next_state: State) -> None:
        """Learn from one window: under ``state.level`` the configuration showed ``cost``.

        Raises:
            ValueError: The cost is negative or not finite; nothing is learned.
        """

    def costs(self, level: int) -> np.ndarray:
        """Return the learned cost of each configuration at a load level; NaN where unknown.   # (size,)."""

    def save(self, folder: Path) -> None:
        """Write everything learned to a folder, atomically, without pickle.

        Raises:
            StorageError: The folder cannot be written.
        """

    def close(self) -> None:
        """Stop background work. May be called twice."""


@runtime_checkable
class Explains(Protocol):
    """An agent that knows where its expectations come from."""

    def basis(self, state: State, configuration: int) -> str:
        """Return in words what the expected cost of a configuration rests on; may be empty."""


@runtime_checkable
class KnowsLoads(Protocol):
    """An agent that tells the loads of one level apart."""

    def costs_at(self, state: State) -> np.ndarray:
        """Return what :meth:`Agent.costs` does, at the load of a state.   # (size,)."""


def costs_at(agent: Agent, state: State) -> np.ndarray:
    """Return the learned costs at the load of a state, or at its level if that is all that an agent knows."""
    return agent.costs_at(state) if isinstance(agent, KnowsLoads) else agent.costs(state.level)


def check_cost(cost: float) -> float:
    """Return a cost that can be learned from.

    Raises:
        ValueError: It is not finite, or negative.
    """
    if not (math.isfinite(cost) and cost >= 0):
        raise ValueError(f"a cost to learn from must be finite and at least 0, but got {cost=}")
    return cost


def check_seed(seed: int) -> int:
    """Return a seed that generators take.

    Raises:
        InvalidInput: It is no whole number, or negative.
    """
    try:
        whole = operator.index(seed)  # an array has the method, too, and refuses
    except TypeError:
        raise InvalidInput("seed", f"{seed!r} is no whole number", "use 0 or a positive one") from None
    if whole < 0:
        raise InvalidInput("seed", f"{seed} is negative", "use 0 or a positive number")
    return whole
