"""Evaluates a stored policy: it neither explores nor learns, and stands beside the oracle and the start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tuner.agents.agent import Agent, State
from tuner.agents.idle import Idle
from tuner.knobs import KnobSpace
from tuner.laboratory.agent_run import AgentRun, RunSpec, new_agent, serving, train_agent

if TYPE_CHECKING:
    import gymnasium as gym

__all__ = ["ORACLE", "POLICY", "START", "PolicyEvaluation", "evaluate", "evaluation_seed"]

POLICY, ORACLE, START = "policy", "oracle", "start"
"""What is evaluated: the policy, the best configuration by exact costs, and the one that servers start
with."""


EVALUATION = 1
"""Told from a training by it: a policy that chose by what its training drew would look better than it is."""


class PolicyEvaluation(NamedTuple):
    """One evaluation: plain values, which travel to other processes."""

    spec: RunSpec
    """The environment and the seed; its agent is not used."""
    who: str
    """What is evaluated: ``policy``, ``oracle`` or ``start``."""
    folder: Path
    """Of the policy."""


class Greedy(Idle):
    """An agent that does what another one believes to be best, and learns nothing.

    Args:
        agent: The other agent.
        space: The configurations.
    """

    def __init__(self, agent: Agent, space: KnobSpace) -> None:
        super().__init__(space)
        self.agent = agent

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Choose what the other agent believes to be best."""
        return self.agent.best(state, allowed)

    def close(self) -> None:
        """Close the other agent."""
        self.agent.close()


def evaluate(evaluation: PolicyEvaluation) -> AgentRun:
    """Run one evaluation, under other arrivals and noise than a training with the same seed had.

    Raises:
        InvalidInput: The policy is about other knobs (says which) or for another objective, or the oracle's
            exact costs are not known.
        StorageError: There is no policy, or it is damaged.
    """
    spec = replace(evaluation.spec, agent=evaluation.who, parameters={})

    def make(spec: RunSpec, env: gym.Env[Any, Any]) -> Agent:
        world = serving(env)
        space = world.space
        if evaluation.who == POLICY:
            from tuner.agents.catalogue import load_agent

            objective = world.objective
            learned = load_agent(
                evaluation.folder, space, objective=objective, cores=objective.cores, seed=spec.seed
            )
            return Greedy(learned, space)
        return new_agent(spec, env) if evaluation.who == ORACLE else Idle(space)

    agent, run = train_agent(spec.seeded(evaluation_seed(spec.seed)), make=make)
    agent.close()
    return run._replace(spec=spec)


def evaluation_seed(seed: int) -> int:
    """Return the seed under which a policy is judged that was trained with a seed.

    It is that of none of the training's episodes: two numbers make theirs, three this one
    (:func:`~tuner.agents.training.episode_seed`).
    """
    return int(np.random.SeedSequence([seed, 0, EVALUATION]).generate_state(1)[0])
