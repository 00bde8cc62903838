"""What was measured so far, one entry per configuration and load, as the smoother wants it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from tuner.agents.rrl.smoothing import Points

__all__ = ["Measured"]

NEAR = 0.125
"""Octaves of load (9 %): windows of one configuration that lie nearer to each other are one point. The rate
of 1,000 Poisson requests is off by 0.045 octaves; the logarithm of the cost is nearly straight so near."""
STEEPEST = 2.0
"""Costs are thought to grow at most with this power of the load, where a load's least cost is concerned."""
SMALLEST = 1e-3
"""Costs below count as this much, so that they have a logarithm."""
ERAS = 3
"""Eras that are remembered, the present one included."""


@dataclass(slots=True)
class _Group:
    """Windows of one configuration at nearly one load; both are means."""

    log: float = 0.0
    load: float = 0.0
    windows: int = 0

    def add(self, load: float, log: float) -> None:
        self.windows += 1
        self.log += (log - self.log) / self.windows
        self.load += (load - self.load) / self.windows


class Measured:
    """The windows of one agent.

    Life: :meth:`add` after every window; when the machine has changed, :meth:`begin_era` says since when.

    Args:
        places: Where configurations lie.   # (size, knobs) octaves
        memory: Windows remembered.

    Attributes:
        era: Number of the present one, from 0.
        total: Windows added ever.
    """

    def __init__(self, places: np.ndarray, memory: int) -> None:
        self._places = places
        self._memory = memory
        self._rows: list[tuple[int, float, int, float, int]] = []
        self._groups: dict[tuple[int, int, int], list[_Group]] = {}  # of an era, level and configuration
        self._visits: dict[int, Counter[int]] = {}
        self.era = 0
        self.total = 0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, level: int, load: float, configuration: int, cost: float) -> None:
        """Add one window.

        Args:
            level: The load level.
            load: Octaves: logarithm of the rate to base 2.
            configuration: What was in force.
            cost: At least 0.
        """
        self.total += 1
        self._rows.append((level, load, configuration, cost, self.era))
        if len(self._rows) > self._memory:
            self._restore(self._rows[-self._memory * 3 // 4 :], self.era)
            return
        self._enter(*self._rows[-1])

    def visits(self, level: int) -> Counter[int]:
        """Windows per configuration at a level."""
        return self._visits.get(level, Counter())

    @property
    def levels(self) -> list[int]:
        """Levels at which anything was measured, increasing."""
        return sorted(self._visits)

    def since(self, configuration: int, load: float) -> int:
        """Windows in which a configuration was measured in this era within an octave's quarter of a load."""
        return sum(
            group.windows
            for level in self._visits
            for group in self._groups.get((self.era, level, configuration), ())
            if abs(group.load - load) <= 2 * NEAR
        )

    def begin_era(self, windows: int) -> None:
        """Begin an era with the last so many windows: the machine is another since then."""
        cut = len(self._rows) - windows
        rows = [row if n < cut else (*row[:4], self.era + 1) for n, row in enumerate(self._rows)]
        self._restore(rows, self.era + 1)

    def rows(self) -> np.ndarray:
        """Level, load, configuration, cost and era of every window.   # (n, 5)."""
        return np.array(self._rows, dtype=np.float64).reshape(-1, 5)

    def restore(self, rows: np.ndarray, era: int, total: int) -> None:
        """Take over what :meth:`rows` returned."""
        self.total = total
        plain = [(int(a), float(b), int(c), float(d), int(e)) for a, b, c, d, e in rows]
        self._restore(plain, era)

    def points(self, load: float, ceiling: float, most: int, level: int | None = None) -> Points:
        """Return what a prediction at a load rests on.

        Args:
            load: Octaves.
            ceiling: Logarithms above the least at the same load that a cost may count.
            most: Points; those nearest in load are taken.
            level: Only what was measured at this level; None for all.
        """
        chosen = [
            (era, configuration, group)
            for (era, at, configuration), groups in self._groups.items()
            if level is None or at == level
            for group in groups
        ]
        if len(chosen) > most:
            chosen = sorted(chosen, key=lambda entry: abs(entry[2].load - load))[:most]
        windows = np.array([group.windows for *_, group in chosen], dtype=np.float64)
        loads = np.array([group.load for *_, group in chosen])
        logs = np.array([group.log for *_, group in chosen])
        eras = np.array([era for era, *_ in chosen], dtype=np.float64)
        numbers = np.array([configuration for _, configuration, _ in chosen], dtype=np.int64)
        places = np.column_stack([self._places[numbers], loads, eras])
        return Points(places, np.minimum(logs, _least(loads, logs, eras) + ceiling), windows, numbers)

    def _enter(self, level: int, load: float, configuration: int, cost: float, era: int) -> None:
        if era > self.era - ERAS:
            groups = self._groups.setdefault((era, level, configuration), [])
            group = min(groups, key=lambda group: abs(group.load - load), default=None)
            if group is None or abs(group.load - load) >= NEAR:
                group = _Group()
                groups.append(group)
            group.add(load, math.log(max(cost, SMALLEST)))
        self._visits.setdefault(level, Counter())[configuration] += 1

    def _restore(self, rows: list[tuple[int, float, int, float, int]], era: int) -> None:
        self._rows, self._groups, self._visits, self.era = list(rows), {}, {}, era
        for row in self._rows:
            self._enter(*row)


def _least(loads: np.ndarray, logs: np.ndarray, eras: np.ndarray) -> np.ndarray:
    """The least that was measured in the same era, at each load and on the steepest way there.   # (n,)."""
    if not logs.size:
        return logs
    apart = STEEPEST * math.log(2.0) * np.abs(loads[:, None] - loads[None, :])
    there = np.where(eras[:, None] == eras[None, :], logs[None, :] + apart, np.inf)
    return np.asarray(there.min(axis=1))
