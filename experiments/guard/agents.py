"""Safe exploration: what different agents try, behind the guard and without it.

The terms are OnlineTune's (Zhang et al., SIGMOD'22, arXiv 2203.14473, section 7): the share of unsafe
configurations among those tried, and the cumulative improvement over the default configuration. Servers,
loads and arrivals are those of guard-ablation; nothing was tuned on those of its seeds.
Before 2026-11-27 they were the seeds from 101 on, on which the guard's rules had been chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any, NamedTuple

from tuner.agents.agent import Agent
from tuner.agents.catalogue import make_agent
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row
from tuner.experiments.guard.life import FIGURES, WINDOW, lived_by
from tuner.experiments.guard.load import LOADS, TROUBLED
from tuner.experiments.guard.variants import FULL, NONE
from tuner.knobs import KnobSpace
from tuner.objective import Objective

__all__ = ["AgentTask", "GuardAgents"]

AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "rrl": ("rrl", {}),
    "rrl:prior=none": ("rrl", {"prior": "none"}),
    "safe_gp": ("safe_gp", {}),
    "hill_climb": ("hill_climb", {}),
}
"""Name -> the agent and its constants."""
GUARDS = {"guarded": FULL, "alone": NONE}
SHOWN = ("unsafe configurations tried", "improvement", "windows that broke the SLO", "regret", "changes")


class AgentTask(NamedTuple):
    """An agent under a load."""

    load: str
    agent: str
    guard: str


@experiment(
    name="guard-agents",
    title="Safe exploration in OnlineTune's terms: agents behind the guard and without it",
    minutes=15,
    shown=40,
)
class GuardAgents(Experiment[AgentTask, dict[str, float]]):
    """Every agent, with and without the guard, under every load in which nothing else goes wrong."""

    first_seed = 7001
    windows = Scaled(120, quick=40)
    """Of a life."""

    def tasks(self) -> list[AgentTask]:
        return [
            AgentTask(load, agent, guard)
            for load in LOADS
            if load not in TROUBLED
            for agent in AGENTS
            for guard in GUARDS
        ]

    def measure(self, task: AgentTask, seed: int) -> dict[str, float]:
        name, constants = AGENTS[task.agent]

        def make(space: KnobSpace, objective: Objective, seed: int) -> Agent:
            return make_agent(name, space, seed=seed, objective=objective, parameters=constants)

        return lived_by(make, task.load, seed, GUARDS[task.guard], self.windows).figures

    def rows(self, found: Answers[AgentTask, dict[str, float]]) -> Iterator[Row]:
        for agent in AGENTS:
            for guard in GUARDS:
                lives = [
                    life
                    for task, ones in found.items()
                    if (task.agent, task.guard) == (agent, guard)
                    for life in ones
                ]
                for name in SHOWN:
                    values = [life[name] for life in lives]
                    yield Row(
                        id=f"{agent}, {guard}: {name}",
                        measured=fmean(values),
                        low=min(values),
                        high=max(values),
                        unit=FIGURES[name],
                        note="mean of all lives",
                    )

    def configuration(self) -> dict[str, Any]:
        return {"windows": self.windows, "window": WINDOW, "agents": [*AGENTS]}
