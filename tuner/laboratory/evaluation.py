"""Evaluation: how a policy serves that no longer explores or learns, beside the oracle and the start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tuner.agents.agent import Agent, State
from tuner.laboratory.trial import Trial, TrialSpec, new_agent, serving, start_of, train_agent

if TYPE_CHECKING:
    import gymnasium as gym

__all__ = ["ORACLE", "POLICY", "START", "Evaluation", "evaluate"]

POLICY, ORACLE, START = "policy", "oracle", "start"
"""Who is evaluated: the policy, who knows the exact costs, and the configuration that servers start with."""


class Evaluation(NamedTuple):
    """What is evaluated."""

    spec: TrialSpec
    """Where, and with what seed; who learned the policy does not matter."""
    who: str
    """One of the three above."""
    folder: Path
    """Of the policy."""


class Greedy:
    """An agent that only does what another one knows to be best.

    Args:
        agent: Its owner closes it.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Choose what the other one knows to be best."""
        return self.agent.best(state, allowed)

    def best(self, state: State, allowed: np.ndarray | None = None) -> int:
        """The same."""
        return self.agent.best(state, allowed)

    def update(self, state: State, configuration: int, cost: float, next_state: State) -> None:
        """Learn nothing."""

    def costs(self, level: int) -> np.ndarray:
        """What the other one learned.   # (size,)."""
        return self.agent.costs(level)

    def save(self, folder: Path) -> None:
        """Save the other one."""
        self.agent.save(folder)

    def close(self) -> None:
        """Close the other one."""
        self.agent.close()


class Fixed(Greedy):
    """An agent that always holds one configuration.

    Args:
        agent: What knows nothing.
        configuration: The number of the configuration.
    """

    def __init__(self, agent: Agent, configuration: int) -> None:
        super().__init__(agent)
        self.configuration = configuration

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:  # noqa: ARG002
        """Hold the configuration."""
        return self.configuration


def evaluate(evaluation: Evaluation) -> Trial:
    """Run a policy greedily.

    Raises:
        InvalidInput: The policy is about other knobs (says which), or the oracle's exact costs are not known.
        StorageError: There is no policy, or it is damaged.
    """
    spec = replace(evaluation.spec, agent=evaluation.who, parameters={})

    def make(spec: TrialSpec, env: gym.Env[Any, Any]) -> Agent:
        if evaluation.who == POLICY:
            from tuner.agents.catalogue import load_agent

            return Greedy(load_agent(evaluation.folder, serving(env).space, seed=spec.seed))
        if evaluation.who == ORACLE:
            return new_agent(spec, env)
        return Fixed(new_agent(replace(spec, agent="random"), env), start_of(env))

    agent, trial = train_agent(spec, make=make)
    agent.close()
    return trial
