"""Evaluates a stored policy: it neither explores nor learns, and stands beside the oracle and the start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tuner.agents.agent import Agent, State
from tuner.laboratory.agent_run import AgentRun, RunSpec, new_agent, serving, start_of, train_agent

if TYPE_CHECKING:
    import gymnasium as gym

__all__ = ["ORACLE", "POLICY", "START", "Evaluation", "evaluate"]

POLICY, ORACLE, START = "policy", "oracle", "start"
"""What is evaluated: the policy, the best configuration by exact costs, and the one that servers start
with."""


class Evaluation(NamedTuple):
    """One evaluation: plain values, which travel to other processes."""

    spec: RunSpec
    """The environment and the seed; its agent is not used."""
    who: str
    """What is evaluated: ``policy``, ``oracle`` or ``start``."""
    folder: Path
    """Of the policy."""


class Greedy:
    """An agent that does what another one believes to be best, and learns nothing.

    Args:
        agent: Its owner closes it.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Choose what the other agent believes to be best."""
        return self.agent.best(state, allowed)

    def best(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Choose as `select` does."""
        return self.agent.best(state, allowed)

    def update(self, state: State, configuration: int, cost: float, next_state: State) -> None:
        """Learn nothing."""

    def costs(self, level: int) -> np.ndarray:
        """Return what the other agent learned.   # (size,)."""
        return self.agent.costs(level)

    def save(self, folder: Path) -> None:
        """Save the other agent."""
        self.agent.save(folder)

    def close(self) -> None:
        """Close the other agent."""
        self.agent.close()


class Fixed(Greedy):
    """An agent that always chooses one configuration.

    Args:
        agent: An agent that has learned nothing.
        configuration: The number of the configuration.
    """

    def __init__(self, agent: Agent, configuration: int) -> None:
        super().__init__(agent)
        self.configuration = configuration

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:  # noqa: ARG002
        """Choose the configuration."""
        return self.configuration


def evaluate(evaluation: Evaluation) -> AgentRun:
    """Run one evaluation.

    Raises:
        InvalidInput: The policy is about other knobs (says which), or the oracle's exact costs are not known.
        StorageError: There is no policy, or it is damaged.
    """
    spec = replace(evaluation.spec, agent=evaluation.who, parameters={})

    def make(spec: RunSpec, env: gym.Env[Any, Any]) -> Agent:
        if evaluation.who == POLICY:
            from tuner.agents.catalogue import load_agent

            return Greedy(load_agent(evaluation.folder, serving(env).space, seed=spec.seed))
        if evaluation.who == ORACLE:
            return new_agent(spec, env)
        return Fixed(new_agent(replace(spec, agent="random"), env), start_of(env))

    agent, run = train_agent(spec, make=make)
    agent.close()
    return run
