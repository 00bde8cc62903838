"""The best configuration in hindsight: what every configuration of a server costs under each condition.

The expected cost is the mean over simulated windows that begin on an empty server, the same arrivals for all
configurations. Nothing that a life did enters into it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from tuner.envs.batched_server import row_measurement
from tuner.envs.exact_costs import every_configuration
from tuner.envs.simulator.batched import BatchedSimulator
from tuner.envs.simulator.batched_triton import BatchedTriton
from tuner.experiments.guard.load import Condition
from tuner.experiments.guard.server import HeldOut

__all__ = ["Expected", "Yardstick"]

WINDOWS = 16
"""Of each configuration."""
KEEPS = 0.9
"""A configuration that keeps the SLO in this share of the windows can keep it."""


class Expected(NamedTuple):
    """What to expect of each configuration under one condition. All (size,), by number."""

    cost: np.ndarray
    kept: np.ndarray  # share of windows
    cpu: np.ndarray  # cores
    latency: np.ndarray  # s, the statistic that the SLO bounds

    @property
    def least_cost(self) -> float:
        """The cost of the best configuration."""
        return float(self.cost.min())

    @property
    def achievable(self) -> bool:
        """Whether any configuration can keep the SLO."""
        return bool(self.kept.max() >= KEEPS)

    def safe(self, configuration: int) -> bool:
        """Whether a configuration can keep the SLO, or none can."""
        return bool(self.kept[configuration] >= KEEPS) or not self.achievable

    def least(self, values: np.ndarray) -> float:
        """Return the least value among the configurations that can keep the SLO; infinite if none can."""
        return float(values[self.kept >= KEEPS].min(initial=np.inf))


class Yardstick:
    """Knows what every configuration costs; each condition is computed on first use.

    Args:
        case: The server, and what is wanted of it.
        seconds: Length of a window.
        failing: Numbers of configurations that never keep the SLO, whatever the simulation says.
    """

    def __init__(self, case: HeldOut, seconds: float, *, failing: Collection[int] = ()) -> None:
        self._case, self._seconds, self._failing = case, seconds, np.array(sorted(failing), np.int64)
        self._model = BatchedTriton(server=case.server, rate=case.rate)
        self.space = case.space
        self._plans = self._model.plans(self.space)
        self._known: dict[Condition, Expected] = {}

    def at(self, condition: Condition) -> Expected:
        """Return what to expect under a condition."""
        if condition not in self._known:
            self._known[condition] = self._computed(condition)
        return self._known[condition]

    def _computed(self, condition: Condition) -> Expected:
        plans = self._plans._replace(profile=self._plans.profile * condition.slowdown)
        simulator = BatchedSimulator(plans, self._model.traffic(condition.shape), workers=1)
        arrays = every_configuration(simulator, condition.rate, self._seconds, WINDOWS)
        objective, default = self._case.objective, self.space.default
        windows = [row_measurement(arrays, row, default) for row in range(arrays.rate.size)]
        cost = np.array([objective.cost(m) for m in windows]).reshape(WINDOWS, -1)
        kept = np.array([objective.kept(m) for m in windows]).reshape(WINDOWS, -1).mean(axis=0)
        latency = np.array([objective.latency(m) for m in windows]).reshape(WINDOWS, -1).mean(axis=0)
        mean = cost.mean(axis=0)
        if self._failing.size:
            kept[self._failing] = 0.0
            mean[self._failing] = np.maximum(mean[self._failing], objective.broken)
        return Expected(mean, kept, arrays.cpu.reshape(WINDOWS, -1).mean(axis=0), latency)
