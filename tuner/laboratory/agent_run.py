"""A run of an agent: it learns in one environment, from one seed; exact costs judge every window."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tuner.agents.load_levels import LoadLevels
from tuner.agents.training import SILENT, Callbacks, Event, TrainingWindow, learn
from tuner.errors import InvalidInput
from tuner.laboratory.environment import make_environment
from tuner.measurement import QUANTITIES

if TYPE_CHECKING:
    import gymnasium as gym

    from tuner.agents.agent import Agent
    from tuner.envs.serving import ServingEnv
    from tuner.knobs import KnobSpace
    from tuner.objective import Slo

__all__ = [
    "FIGURES",
    "AgentRun",
    "RunSpec",
    "check_run",
    "knob_space",
    "knows_costs",
    "new_agent",
    "run_agent",
    "serving",
    "stage_environment",
    "start_of",
    "train_agent",
]

JUDGED = ("rate", "expected", "best", "kept")
"""What no measurement holds: the load that was offered, the exact costs of what was chosen and of the best
configuration, and whether the SLO was kept."""
SHOWN = tuple(quantity.name for quantity in QUANTITIES if quantity.name not in JUDGED)
"""What was measured in it."""
FIGURES = (*JUDGED, *SHOWN)
"""What is noted of each window beside what the agent learns from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpec:
    """What a run consists of: plain values, which travel to other processes and head a journal."""

    env: str
    """Id of the environment."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Of the environment, by name; plain values."""
    workload: str | None = None
    """How the offered rate changes over an episode; None is the environment's own."""
    rates: tuple[float, ...] = ()
    """Nominal loads, requests/s, one after the other; empty for the environment's own."""
    agent: str = "rrl"
    """Its name in :data:`tuner.agents.catalogue.AGENTS`."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Of the agent."""
    policy: str | None = None
    """Folder of the policy that the agent starts from, with its kind of agent and parameters; None: from
    nothing."""
    policy_sha256: str | None = None
    """Digest of that policy: an interrupted training must not go on from another one."""
    seed: int = 0
    """Of the workload, the arrivals and the agent."""
    windows: int = 300
    """Windows per load."""
    exact: bool = True
    """Whether windows are judged by exact costs; a table of them takes seconds for each new load."""

    @property
    def stages(self) -> tuple[float | None, ...]:
        """The load of each stage; None for the environment's own."""
        return self.rates or (None,)

    @property
    def label(self) -> str:
        """What the agent is called in tables: its name, and the parameters that were given."""
        return ":".join([self.agent, *(f"{name}={value}" for name, value in self.parameters.items())])

    def seeded(self, seed: int) -> RunSpec:
        """Return the same run with another seed."""
        return replace(self, seed=seed)


class AgentRun(NamedTuple):
    """The result of a run; every array has one value for each window."""

    spec: RunSpec
    slo: Slo
    """What counts as kept."""
    level: np.ndarray  # (n,) int64
    configuration: np.ndarray  # (n,) int64
    cost: np.ndarray  # (n,) measured; NaN where nothing was
    learned: np.ndarray  # (n,) bool
    rate: np.ndarray  # (n,) offered requests/s
    expected: np.ndarray  # (n,) exact cost of what was chosen; NaN if the environment knows none
    best: np.ndarray  # (n,) exact cost of the best configuration at that rate
    kept: np.ndarray  # (n,) 1 if the SLO was kept, else 0; NaN where nothing was asked
    shown: Mapping[str, np.ndarray]  # (n,) each, what was measured, by the names of its quantities

    @property
    def skipped(self) -> int:
        """Windows that were not learned from: not measured, not finite, or disturbed."""
        return int(np.count_nonzero(~self.learned))


def run_agent(spec: RunSpec) -> AgentRun:
    """Let an agent learn from beginning to end; the same spec gives the same run."""
    agent, run = train_agent(spec)
    agent.close()
    return run


def train_agent(
    spec: RunSpec,
    *,
    make: Callable[[RunSpec, gym.Env[Any, Any]], Agent] | None = None,
    past: Sequence[Event] = (),
    callbacks: Callbacks = SILENT,
) -> tuple[Agent, AgentRun]:
    """Let an agent learn, or go on with a run that was interrupted.

    Args:
        spec: The run.
        make: Makes the agent; the one that the spec names if None.
        past: The events before an interruption, see :func:`tuner.agents.training.learn`.
        callbacks: Called as the run goes on; its figures are those of the run.

    Returns:
        The agent, to be closed, and what the run showed.

    Raises:
        InvalidInput: An unknown agent, environment or workload (lists those there are), or a bad value.
        StorageError: The agent or the environment does not repeat the past.
    """
    _one_thread()
    agent: Agent | None = None
    windows: list[TrainingWindow] = []
    behind = _by_stage(past, spec.windows)
    for stage in range(len(spec.stages)):
        env = stage_environment(spec, stage)
        if agent is None:
            agent = (make or new_agent)(spec, env)
        windows += learn(
            env,
            agent,
            spec.windows,
            seed=spec.seed + stage,
            start=start_of(env),
            past=behind[stage] if stage < len(behind) else (),
            callbacks=replace(callbacks, figures=_Judge(env, exact=spec.exact)),
        )
        slo = serving(env).objective.slo
        env.close()
    assert agent is not None, "there is at least one stage"
    return agent, _agent_run(spec, slo, windows)


def _one_thread() -> None:
    """Keep PyTorch to one thread: for tiny networks the threads cost more than they save.

    Runs side by side would also compete for the cores.
    """
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    else:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # PyTorch reads it when it is imported


def check_run(spec: RunSpec) -> None:
    """Check that a run is possible, before much is done.

    Raises:
        InvalidInput: An unknown agent, environment or workload (lists those there are), or a bad value.
    """
    for stage in range(len(spec.stages)):
        env = stage_environment(spec, stage)
        if stage == 0:
            new_agent(spec, env).close()
        env.close()


def knob_space(spec: RunSpec) -> KnobSpace:
    """Return the knobs of the environment of a run."""
    env = stage_environment(spec)
    space = serving(env).space
    env.close()
    return space


def knows_costs(spec: RunSpec) -> bool:
    """Whether the exact cost of every configuration is known in the environment of a run."""
    env = stage_environment(spec)
    known = serving(env).knows_costs
    env.close()
    return known


def stage_environment(spec: RunSpec, stage: int = 0) -> gym.Env[Any, Any]:
    """Make the environment of a stage; its episode is as long as the stage.

    Raises:
        InvalidInput: An unknown environment or workload (lists those there are), or a bad argument.
    """
    arguments = dict(spec.arguments)
    rate = spec.stages[stage]
    if rate is not None:
        arguments["rate"] = rate
    if spec.workload is not None:
        arguments["workload"] = spec.workload
    return make_environment(spec.env, {**arguments, "episode_windows": spec.windows}, LoadLevels())


def new_agent(spec: RunSpec, env: gym.Env[Any, Any]) -> Agent:
    """Make the agent of a run; it has learned nothing yet, unless it starts from a policy.

    Raises:
        InvalidInput: There is no such agent (lists those there are), it has no such parameter, or the policy
            is about other knobs (says which) or for another objective.
        StorageError: There is no policy, or it is damaged.
    """
    from tuner.agents.catalogue import load_agent, make_agent

    levels, world = LoadLevels(), serving(env)
    if spec.policy is not None:
        objective = world.objective
        return load_agent(
            Path(spec.policy), world.space, objective=objective, cores=objective.cores, seed=spec.seed
        )
    return make_agent(
        spec.agent,
        world.space,
        seed=spec.seed,
        levels=levels,
        objective=world.objective,
        expected=world.expected_costs,
        start=start_of(env),
        parameters=spec.parameters,
    )


def serving(env: gym.Env[Any, Any]) -> ServingEnv:
    """Return the environment without the wrappers that Gymnasium puts around it."""
    from tuner.envs.serving import ServingEnv

    inner = env.unwrapped
    assert isinstance(inner, ServingEnv), inner
    return inner


def start_of(env: gym.Env[Any, Any]) -> int:
    """Return the number of the configuration that a server starts with."""
    space = serving(env).space
    return int(space.encode(space.default))


class _Judge:
    """Returns the figures of a window: what was measured, its exact cost, and that of the best choice."""

    def __init__(self, env: gym.Env[Any, Any], *, exact: bool) -> None:
        self._env = serving(env)
        self._exact = exact

    def __call__(self, configuration: int, info: Mapping[str, Any]) -> dict[str, float]:
        m = info["measurement"]
        rate = float(info.get("rate", m.arrival_rate))
        expected, best = self._costs(configuration, rate)
        asked = m.arrival_rate > 0 or m.asked > 0
        kept = float(self._env.objective.kept(m)) if asked else math.nan
        return {**m.figures(), "rate": rate, "expected": expected, "best": best, "kept": kept}

    def _costs(self, configuration: int, rate: float) -> tuple[float, float]:
        """Exact cost of a configuration and of the best; NaN where the environment knows none."""
        if self._exact and rate > 0:
            try:
                costs = self._env.expected_costs(rate)
            except InvalidInput:
                self._exact = False
            else:
                return float(costs[configuration]), float(costs.min())
        return math.nan, math.nan


def _by_stage(past: Sequence[Event], windows: int) -> list[list[Event]]:
    """Split events into the stages of a run."""
    stages: list[list[Event]] = [[]]
    count = 0
    for event in past:
        if count == windows:
            stages.append([])
            count = 0
        stages[-1].append(event)
        count += isinstance(event, TrainingWindow)
    return stages


def _agent_run(spec: RunSpec, slo: Slo, windows: list[TrainingWindow]) -> AgentRun:
    figures = {name: np.array([w.figures[name] for w in windows], dtype=float) for name in FIGURES}
    shown = {name: figures.pop(name) for name in SHOWN}
    cost = np.array([w.cost for w in windows], dtype=float)
    cost[np.isnan(figures["kept"])] = math.nan  # nothing was asked: the reward is 0, and no cost was measured
    return AgentRun(
        spec=spec,
        slo=slo,
        level=np.array([w.level for w in windows], dtype=np.int64),
        configuration=np.array([w.configuration for w in windows], dtype=np.int64),
        cost=cost,
        learned=np.array([w.learned for w in windows], dtype=bool),
        shown=shown,
        **figures,
    )
