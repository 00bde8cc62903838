"""Runs an agent in an environment: offline training, and the yardstick of every agent's tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.agents.agent import Agent, State

if TYPE_CHECKING:
    import gymnasium as gym

__all__ = ["TrainingWindow", "learn"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingWindow:
    """What one window of training showed."""

    window: int
    """Its number, from 0."""
    level: int
    """The load level it was measured under."""
    configuration: int
    """The number of the configuration in force."""
    cost: float
    """Its cost; NaN if nothing was measured."""
    learned: bool
    """Whether the agent was told; disturbed windows and failures are not learned from."""


def learn(
    env: gym.Env[Any, Any],
    agent: Agent,
    windows: int,
    *,
    seed: int | None = None,
    start: int = 0,
    progress: Callable[[], None] | None = None,
) -> list[TrainingWindow]:
    """Let an agent choose and learn for a number of windows.

    The environment's action is the number of a configuration, its reward the negated cost; ``info`` holds
    ``level`` and may hold ``disturbed`` (reasons not to learn), ``error`` (the backend failed) and
    ``measurement`` (a window in which nothing was asked has nothing to teach). When an episode ends, the
    next begins; the agent keeps what it knows.

    Args:
        env: For instance ``tuner/TritonCPU-v0``.
        agent: It is changed.
        windows: How many, at least 0.
        seed: Of the environment's first episode.
        start: Number of the configuration in force after a reset, if ``info`` does not tell.
        progress: Called after each window.

    Returns:
        One entry per window.

    Raises:
        KeyError: ``info`` has no ``level``: the environment was made without load levels.
        AdapterError: The backend of a live environment cannot be reached at a reset.
    """
    history: list[TrainingWindow] = []
    observation, info = env.reset(seed=seed)
    state = State(level=info["level"], configuration=_number(env, info, start), observation=observation)
    for window in range(windows):
        action = agent.select(state)
        observation, reward, terminated, truncated, info = env.step(action)
        # The window's own level: the load may have changed since the agent chose.
        measured = State(level=info["level"], configuration=action, observation=observation)
        cost = -float(reward)
        learned = _teaches(cost, info)
        if learned:
            agent.update(measured, action, cost, measured)
        history.append(
            TrainingWindow(
                window=window, level=measured.level, configuration=action, cost=cost, learned=learned
            )
        )
        state = measured
        if (terminated or truncated) and window + 1 < windows:
            observation, info = env.reset()
            state = State(
                level=info["level"], configuration=_number(env, info, start), observation=observation
            )
        if progress is not None:
            progress()
    return history


def _teaches(cost: float, info: dict[str, Any]) -> bool:
    """Whether a window may be learned from."""
    if not math.isfinite(cost) or cost < 0 or info.get("disturbed") or info.get("error"):
        return False
    measurement = info.get("measurement")
    return measurement is None or measurement.arrival_rate > 0


def _number(env: gym.Env[Any, Any], info: dict[str, Any], start: int) -> int:
    """The number of the configuration in force, as ``info`` tells it."""
    configuration = info.get("configuration")
    if configuration is None:
        return start
    if isinstance(configuration, int):
        return configuration
    space = env.get_wrapper_attr("space")
    return int(space.encode(space.nearest(configuration)))
