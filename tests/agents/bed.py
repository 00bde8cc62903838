"""A server in one formula: a batching queue on a 6 x 6 x 2 grid, on which agents are tried in seconds."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np

from tuner.agents import Agent, State
from tuner.agents.rrl import RRL
from tuner.agents.rrl.table.perception import TablePerception
from tuner.knobs import Configuration, Knob, KnobSpace

SLO = 0.020  # s
NEAR = 1.15
"""Within 15 % of the best counts as found."""
LOW, HIGH = 20, 29
RATES = {LOW: 150.0, HIGH: 700.0}  # load level -> requests/s


def make_space() -> KnobSpace:
    """The grid that Triton's three knobs span in most tests."""
    return KnobSpace(
        [
            Knob(name="max_batch_size", grid=(1, 2, 4, 8, 16, 32), default=1),
            Knob(name="max_queue_delay", grid=(0, 0.0005, 0.001, 0.002, 0.005, 0.01), default=0, unit="s"),
            Knob(name="instances", grid=(1, 2), default=1),
        ]
    )


def table(agent: RRL) -> TablePerception:
    """The Q table of an agent that was made with one."""
    assert isinstance(agent.perception, TablePerception)
    return agent.perception


def surface(space: KnobSpace, rate: float) -> np.ndarray:
    """Cost of every configuration: p95 over the SLO, 4.5 and more where it is overloaded.   # (size,)."""
    return np.array([_cost(space.decode(c), rate) for c in range(space.size)])


def _cost(configuration: Configuration, rate: float) -> float:
    largest, delay, instances = (float(value) for value in configuration.values())
    slowdown = 1.35 if instances == 2 else 1.0

    def execution(batch: float) -> float:
        return slowdown * (0.0004 * batch + 0.004)

    load = rate * execution(largest) / (instances * largest)
    if load >= 0.97:
        return min(30.0, 6.0 + 9.0 * math.log(max(load, 1.0)))
    batch = 1.0
    for _ in range(30):  # fixed point: a batch gathers what arrives while the one before it runs
        batch = min(largest, max(1.0, rate * (execution(batch) / instances + 0.7 * delay)))
    service = execution(batch)
    wait = min(delay, (largest - 1) / rate) + 0.6 * service + service * load**3 / (2 * (1 - load))
    return (service + 1.2 * wait) / SLO


def noise(generator: np.random.Generator) -> float:
    """Factor on a measured p95: 7 %, in one window of ten 14 %."""
    return float(generator.lognormal(0.0, 0.14 if generator.random() < 0.1 else 0.07))


def windows_to_near(
    agent: Agent, space: KnobSpace, truth: np.ndarray, level: int, *, seed: int, windows: int, start: int = 0
) -> tuple[int, int]:
    """Run an agent in steps of at most two grid steps, as the control loop allows.

    Returns:
        The window from which on ``best`` stays within 15 % of the true best (``windows + 1``: never), and
        the configuration in force at the end.
    """
    generator = np.random.default_rng(seed)
    near = truth <= NEAR * truth.min()
    current, last_bad = start, 0
    for window in range(1, windows + 1):
        state = State(level=level, configuration=current)
        current = agent.select(state, space.region(current, 2.0))
        state = State(level=level, configuration=current)
        agent.update(state, current, float(truth[current]) * noise(generator), state)
        if not near[agent.best(state)]:
            last_bad = window
    return last_bad + 1, current


class Bandit(gym.Env[np.ndarray, np.int64]):
    """Five configurations with fixed costs; window 2 is disturbed, window 3 not measured."""

    costs = (3.0, 1.0, 0.4, 1.2, 5.0)

    def __init__(self, episode_windows: int = 20) -> None:
        self.action_space = gym.spaces.Discrete(len(self.costs))
        self.observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
        self.episode_windows = episode_windows
        self.windows = 0
        self.resets = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.windows = 0
        self.resets += 1
        return np.zeros(1, np.float32), {"level": 3}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.windows += 1
        cost = self.costs[int(action)] * float(self.np_random.lognormal(0.0, 0.05))
        info = {"level": 3, "disturbed": ("foreign load",) if self.windows == 2 else ()}
        reward = math.nan if self.windows == 3 else -cost
        return np.zeros(1, np.float32), reward, False, self.windows >= self.episode_windows, info
