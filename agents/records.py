"""The measured costs of every configuration at each load level: the memory of all agents but RRL."""

from __future__ import annotations

import math

import numpy as np

from tuner.agents.agent import check_cost
from tuner.agents.load_levels import nearest_level
from tuner.knobs import KnobSpace

__all__ = ["LevelCosts", "Records"]

SLOWEST = 0.1
"""Least weight of the newest window in a mean cost, so that the mean follows a server that changes."""


class LevelCosts:
    """The windows of one load level: arrays with an entry per configuration, changed in place.

    Args:
        size: Number of configurations.

    Attributes:
        cost: Mean cost, NaN if never measured.   # (size,)
        count: Windows behind that mean.   # (size,) int64
        windows: Windows of the level.
    """

    __slots__ = ("cost", "count", "windows")

    def __init__(self, size: int) -> None:
        self.cost = np.full(size, np.nan)
        self.count = np.zeros(size, dtype=np.int64)
        self.windows = 0

    def add(self, configuration: int, cost: float) -> None:
        """Take in one window."""
        self.windows += 1
        self.count[configuration] += 1
        weight = max(1.0 / int(self.count[configuration]), SLOWEST)
        old = 0.0 if weight == 1.0 else self.cost[configuration]
        self.cost[configuration] = (1.0 - weight) * old + weight * cost

    @property
    def measured(self) -> np.ndarray:
        """Numbers of the configurations that were measured, increasing.   # (n,) int64."""
        return np.flatnonzero(self.count)

    def remembered(self, most: int, generator: np.random.Generator) -> np.ndarray:
        """Return the measured configurations that a model is built on, increasing.   # (n,) int64.

        Args:
            most: How many at most; of more, the cheapest half of this and a sample of the others.
            generator: Of the sample.
        """
        measured = self.measured
        if measured.size <= most:
            return measured
        ordered = measured[np.argsort(self.cost[measured], kind="stable")]
        cheapest, others = np.split(ordered, [math.ceil(most / 2)])
        return np.sort(np.append(cheapest, generator.choice(others, most // 2, replace=False)))

    def least(self) -> int | None:
        """Return the measured configuration with the least mean cost (the lowest number of equals)."""
        known = self.measured
        return int(known[np.argmin(self.cost[known])]) if known.size else None


class Records:
    """One :class:`LevelCosts` per load level. Configurations equal in effect share one entry.

    Args:
        space: The configurations.
    """

    def __init__(self, space: KnobSpace) -> None:
        self._space = space
        self.levels: dict[int, LevelCosts] = {}

    def __getitem__(self, level: int) -> LevelCosts:
        """Return the record of a level; a new level gets an empty one."""
        if level not in self.levels:
            self.levels[level] = LevelCosts(self._space.size)
        return self.levels[level]

    def add(self, level: int, configuration: int, cost: float) -> int:
        """Take in one window and return the number that stands for all configurations equal in effect.

        Raises:
            ValueError: The cost is not finite or negative, or there is no such configuration.
        """
        check_cost(cost)
        if not 0 <= configuration < self._space.size:
            raise ValueError(f"a configuration is one of 0..{self._space.size - 1}, but got {configuration}")
        number = int(self._space.canonical[configuration])
        self[level].add(number, cost)
        return number

    def windows(self, level: int) -> int:
        """Return how many windows were measured at a level."""
        return self.levels[level].windows if level in self.levels else 0

    def costs(self, level: int) -> np.ndarray:
        """Return the mean cost of every configuration; NaN if never measured.   # (size,)."""
        if level not in self.levels:
            return np.full(self._space.size, np.nan)
        return np.asarray(self.levels[level].cost[self._space.canonical])

    def nearest(self, level: int) -> LevelCosts | None:
        """Return the record of the level itself or of the nearest one that was measured; None without any."""
        seen = [other for other, record in self.levels.items() if record.windows]
        return self.levels[nearest_level(seen, level)] if seen else None

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything as arrays, an entry per level and measured configuration."""
        rows = [(level, c) for level, record in sorted(self.levels.items()) for c in record.measured]
        entries = [(self.levels[level].count[c], self.levels[level].cost[c]) for level, c in rows]
        keys = np.array(rows, dtype=np.int64).reshape(-1, 2)
        return {
            "record_level": keys[:, 0],
            "record_configuration": keys[:, 1],
            "record_count": np.array([count for count, _ in entries], dtype=np.int64),
            "record_cost": np.array([cost for _, cost in entries], dtype=np.float64),
        }

    def restore(self, levels: np.ndarray, numbers: np.ndarray, counts: np.ndarray, costs: np.ndarray) -> None:
        """Take over what :meth:`arrays` returned.

        Raises:
            ValueError: A value is out of range, or an entry is there twice.
        """
        keys = list(zip(levels.tolist(), numbers.tolist(), strict=True))
        inside = (numbers >= 0) & (numbers < self._space.size) & (counts > 0) & (costs >= 0)
        if len(set(keys)) != len(keys) or not (inside & np.isfinite(costs)).all():
            raise ValueError("records have values out of range")
        self.levels.clear()
        for (level, number), count, cost in zip(keys, counts.tolist(), costs.tolist(), strict=True):
            record = self[level]
            record.count[number], record.cost[number] = count, cost
            record.windows += count
