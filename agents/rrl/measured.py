"""The windows measured so far, in the form that the smoother needs: one point per configuration and load.

Windows of one configuration at nearly one load are one point, with their mean and their number. The
smoother's work grows with the cube of the points, and a server that runs one configuration for a day is still
one point.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np

from tuner.agents.load_levels import neighbours, same_neighbours
from tuner.agents.log_cost import log_cost
from tuner.agents.rrl.rise import likely_rise
from tuner.agents.rrl.smoothing import Points

__all__ = ["ERA_SPAN", "MeasuredWindows", "Prospect", "left_on"]

NEAR = 0.125
"""Octaves of load (9 %) within which windows of one configuration are one point. The rate of 1,000 Poisson
requests is off by 0.045 octaves, so that an even load does not scatter; and within 9 % the logarithm of the
cost is nearly straight, so that the mean stands for all."""
STEEPEST = 2.0
"""The least cost is taken to grow at most with this power of the load. So the least cost at one load bounds
that at another, at which only dear configurations were measured."""
ERA_SPAN = 1 << 20
"""A machine's number is its era, plus this for each time that neighbours halve its capacity. There are
fewer eras than this. See :meth:`MeasuredWindows.machine`."""
RECENT = 400
"""Windows that show how often the load rises."""
ERAS = 3
"""Eras that are remembered, the present one included: a machine that changes back is still known."""

_Window = tuple[int, float, int, float, int]
"""Level, load, configuration, cost and era."""


class Prospect(NamedTuple):
    """A load that may come next."""

    level: int
    load: float
    """Octaves."""
    chance: float
    """That it comes in the next window."""


@dataclass(slots=True)
class _Group:
    """Windows of one configuration at nearly one load."""

    log: float = 0.0
    """Mean logarithm of the cost."""
    load: float = 0.0
    """Mean load, octaves."""
    windows: int = 0

    def add(self, load: float, log: float) -> None:
        self.windows += 1
        self.log += (log - self.log) / self.windows
        self.load += (load - self.load) / self.windows


class MeasuredWindows:
    """The windows of one agent.

    Life: :meth:`add` after every window; :meth:`begin_era` when the machine has changed.

    Args:
        places: Coordinates of the configurations.   # (size, knobs) octaves
        memory: Most windows that are remembered; of more, see :meth:`_remembered`.

    Attributes:
        era: Number of the present era, from 0.
        total: Windows ever added, forgotten ones included.
    """

    def __init__(self, places: np.ndarray, memory: int) -> None:
        self._places = places
        self._memory = memory
        self._newest = memory - memory // 2
        self._rows: list[_Window] = []
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
            configuration: The number of the configuration in force.
            cost: The window's cost, at least 0.
        """
        self.total += 1
        self._rows.append((level, load, configuration, cost, self.era))
        if len(self._rows) > self._memory:
            # A quarter is forgotten at once: to group the rest again for every window would be too much work.
            self._rebuild(self._remembered(-(-self._memory * 3 // 4)), self.era)
            return
        self._count_in(*self._rows[-1])

    def visits(self, level: int) -> Counter[int]:
        """Return how many windows each configuration had at a level, the one measured last at the end."""
        return self._visits.get(level, Counter())

    def fresh(self, level: int) -> int:
        """Return how many windows were measured at a level since the machine changed."""
        here = (groups for (era, at, _), groups in self._groups.items() if (era, at) == (self.era, level))
        return sum(group.windows for groups in here for group in groups)

    def notable(self, level: int, most: int) -> list[int]:
        """Return the configurations measured last at a level, and those that cost least there.

        Args:
            level: The load level.
            most: Configurations of either kind.
        """
        costs = {
            configuration: min(group.log for group in groups)
            for (era, at, configuration), groups in self._groups.items()
            if (era, at) == (self.era, level)
        }
        last = list(self.visits(level))[-most:]
        return list(dict.fromkeys([*last, *sorted(costs, key=costs.__getitem__)[:most]]))

    @property
    def levels(self) -> list[int]:
        """Levels at which anything was measured, increasing."""
        return sorted(self._visits)

    def mean_load(self, level: int) -> float | None:
        """Return the mean load of the windows at a level, octaves; None without any."""
        loads = [load for at, load, *_ in self._rows if at == level]
        return fmean(loads) if loads else None

    def machine(self, level: int) -> float:
        """Return the number of the machine that a level has in this era.

        A machine that neighbours share is another one to the smoother, as one that has changed is: what was
        measured without them is correlated with what is measured beside them, and yields to it.
        """
        return _machine(self.era, level)

    def since(self, configuration: int, load: float, level: int) -> int:
        """Return how often a configuration was measured on this machine near (a quarter octave) a load."""
        return sum(
            group.windows
            for at in self._visits
            if same_neighbours(at, level)
            for group in self._groups.get((self.era, at, configuration), ())
            if abs(group.load - load) <= 2 * NEAR
        )

    def least(self, load: float, level: int) -> float:
        """Return a bound on the logarithm of the least cost at a load, from all measured on this machine.

        Args:
            load: Octaves.
            level: The load level, which says beside which neighbours; something was measured beside them.
        """
        machine = self.machine(level)
        here = [
            (group.load, group.log)
            for (era, at, _), groups in self._groups.items()
            if _machine(era, at) == machine
            for group in groups
        ]
        loads, logs = np.array(here).T
        return float((logs + _steepest(loads - load)).min())

    def prospect(self, load: float) -> Prospect | None:
        """Return to what the load may rise from a load, in octaves; None if it never rose so far."""
        recent = self._rows[-min(RECENT, self._newest) :]  # windows in a row: none between them is forgotten
        rise = likely_rise(np.array([row[1] for row in recent]), load)
        return Prospect(*recent[rise.window][:2], rise.chance) if rise is not None else None

    def begin_era(self, windows: int) -> None:
        """Begin a new era with the given number of last windows: the machine changed before them."""
        cut = len(self._rows) - windows
        rows = [row if n < cut else (*row[:4], self.era + 1) for n, row in enumerate(self._rows)]
        self._rebuild(rows, self.era + 1)

    def rows(self) -> np.ndarray:
        """Level, load, configuration, cost and era of every window.   # (n, 5)."""
        return np.array(self._rows, dtype=np.float64).reshape(-1, 5)

    def restore(self, rows: np.ndarray, era: int, total: int) -> None:
        """Take over what :meth:`rows` returned."""
        self.total = total
        plain = [(int(a), float(b), int(c), float(d), int(e)) for a, b, c, d, e in rows]
        self._rebuild(plain, era)

    def has_points(self, level: int | None = None) -> bool:
        """Whether :meth:`points` returns any: those of eras long past are forgotten."""
        return any(level is None or at == level for _, at, _ in self._groups)

    def points(self, load: float, ceiling: float, most: int, level: int | None = None) -> Points:
        """Return the points that a prediction at a load rests on.

        Args:
            load: Octaves.
            ceiling: How far above the least at the same load the logarithm of a cost counts at most.
            most: Most points; those nearest in load are taken.
            level: The level at which points must have been measured; None for any.
        """
        chosen = [
            (_machine(era, at), configuration, group)
            for (era, at, configuration), groups in self._groups.items()
            if level is None or at == level
            for group in groups
        ]
        if len(chosen) > most:
            chosen = sorted(chosen, key=lambda entry: abs(entry[2].load - load))[:most]
        windows = np.array([group.windows for *_, group in chosen], dtype=np.float64)
        loads = np.array([group.load for *_, group in chosen])
        logs = np.array([group.log for *_, group in chosen])
        machines = np.array([machine for machine, *_ in chosen], dtype=np.float64)
        numbers = np.array([configuration for _, configuration, _ in chosen], dtype=np.int64)
        places = np.column_stack([self._places[numbers], loads, machines])
        return Points(
            places, np.minimum(logs, _least_costs(loads, logs, machines) + ceiling), windows, numbers
        )

    def _count_in(self, level: int, load: float, configuration: int, cost: float, era: int) -> None:
        if era > self.era - ERAS:
            groups = self._groups.setdefault((era, level, configuration), [])
            group = min(groups, key=lambda group: abs(group.load - load), default=None)
            if group is None or abs(group.load - load) >= NEAR:
                group = _Group()
                groups.append(group)
            group.add(load, log_cost(cost))
        visits = self._visits.setdefault(level, Counter())
        visits[configuration] = visits.pop(configuration, 0) + 1

    def _remembered(self, most: int) -> list[_Window]:
        """Return the windows to remember when there are too many, in their order.

        Where a configuration has the most windows at its load level, the oldest of them goes, and so on: a
        load is not forgotten because others came after it, as they do in a training. The newest half of the
        memory stays whole, because drift and rises of the load are about windows in a row.
        """
        windows = Counter((level, configuration) for level, _, configuration, _, _ in self._rows)
        old: dict[tuple[int, int], list[int]] = {}  # places of the others, the oldest last
        for place in reversed(range(len(self._rows) - self._newest)):
            level, _, configuration, _, _ = self._rows[place]
            old.setdefault((level, configuration), []).append(place)
        next_ones = [(-windows[pair], places.pop(), pair) for pair, places in old.items()]
        heapq.heapify(next_ones)
        forgotten: set[int] = set()
        while len(self._rows) - len(forgotten) > most:
            count, place, pair = heapq.heappop(next_ones)
            forgotten.add(place)
            if old[pair]:
                heapq.heappush(next_ones, (count + 1, old[pair].pop(), pair))
        return [row for place, row in enumerate(self._rows) if place not in forgotten]

    def _rebuild(self, rows: list[_Window], era: int) -> None:
        self._rows, self._groups, self._visits, self.era = list(rows), {}, {}, era
        for row in self._rows:
            self._count_in(*row)


def _machine(era: int, level: int) -> float:
    return float(era + ERA_SPAN * neighbours(level))


def left_on(machine: float) -> float:
    """Return the share of a machine that foreign processes leave, from the machine's number."""
    return float(2.0 ** -(machine // ERA_SPAN))


def _least_costs(loads: np.ndarray, logs: np.ndarray, machines: np.ndarray) -> np.ndarray:
    """Return bounds on the logarithm of the least cost at each point's load.   # (n,).

    All points of the same machine bound it; see ``STEEPEST``.
    """
    if not logs.size:
        return logs
    apart = _steepest(loads[:, None] - loads[None, :])
    there = np.where(machines[:, None] == machines[None, :], logs[None, :] + apart, np.inf)
    return np.asarray(there.min(axis=1))


def _steepest(apart: np.ndarray) -> np.ndarray:
    """Return by how much the logarithm of the least cost differs at most between loads, octaves apart."""
    return np.asarray(STEEPEST * math.log(2.0) * np.abs(apart))
