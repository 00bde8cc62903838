"""Hill climbing as in the quick search of Triton's Model Analyzer, adapted to a server in service.

The present place of the search is its home. Around it, within a radius, it measures a few configurations
(probes), first those with the most knob values not seen there yet. Each probe pulls home toward itself or
pushes it away, by how much cheaper or dearer it is. Per knob the pulls are summed, divided by the steps that
the probes are away, and translated into 0 to 3 steps up or down (thresholds 0.09, 0.3 and 1).

Where some probes keep the SLO (cost at most 1) and some break it, the surface is too steep for that. The
search is then slow: it measures all direct neighbours and moves to the best. From a home that breaks the SLO,
when an earlier one kept it, it steps back toward the best so far and is slow there. Model Analyzer is done
when a step leads nowhere, or home again.

Where we differ, to make it stronger in our setting:

* Model Analyzer has no load that changes; here each load level has its own climb, which begins at the best
  of the nearest level measured, or at the start (Model Analyzer: every knob at its lowest).
* When it is done it descends: from the best so far it measures direct neighbours and moves to the best of
  them while that is cheaper. Windows are noisy, and step vectors alone end up to two steps away from the
  optimum.
* From a local optimum it may restart, ``restarts`` times, as far as possible from everything measured. By
  default it does not: on the simulated TensorFlow Serving (``tuner compare --windows 250 --seeds 6``) it was
  near the best after 69 windows in the median without restarts, in 5 runs of 6, and with one in 3 of 6.
* The radius is 2 rather than 3, which took 136 windows there.
* Costs are weighed by ``2 (home - other) / (home + other)``, which is in -2..2 whatever the objective, and a
  configuration measured in several windows counts with its mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tuner.agents.records import LevelCosts
from tuner.agents.rivals.search import SearchAgent, SearchParameters
from tuner.agents.rules import check_rules
from tuner.knobs import KnobSpace

__all__ = ["HillClimb", "HillClimbParameters"]

THRESHOLDS = (0.09, 0.3, 1.0)
"""Pulls above these move a knob by one, two and three steps."""
MOST_MOVES = 64
"""Moves without a measurement in between, after which the climb counts as done."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HillClimbParameters(SearchParameters):
    """The constants of the climb."""

    radius: float = 2.0
    """How far from home is measured, grid steps."""
    probes: int = 3
    """Configurations measured there before home moves."""
    restarts: int = 0
    """How often it restarts from far away before the budget is used."""

    def __post_init__(self) -> None:
        SearchParameters.__post_init__(self)
        check_rules(
            self,
            radius=(self.radius >= 1, "at least 1"),
            probes=(self.probes >= 1, "at least 1"),
            restarts=(self.restarts >= 0, "at least 0"),
        )


@dataclass(slots=True)
class LevelClimb:
    """Where the climb of one load level stands."""

    home: int
    slow: bool = False
    """Whether to measure all direct neighbours, whatever they show."""
    descending: bool = False
    """Whether step vectors are done, and only direct neighbours count."""
    kept: bool = False
    """Whether a home kept the SLO."""
    restarts: int = 0


class HillClimb(SearchAgent[HillClimbParameters]):
    """The agent."""

    name = "hill_climb"
    constants: ClassVar[type[Any]] = HillClimbParameters

    def __init__(
        self, space: KnobSpace, parameters: HillClimbParameters | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(space, parameters, seed=seed)
        self._climbs: dict[int, LevelClimb] = {}
        self._homes: dict[int, set[int]] = {}
        """Level -> all homes since the last restart."""

    def _propose(self, level: int) -> int | None:
        record = self.records[level]
        if level not in self._climbs:
            least = record.least()
            self._move(level, self.start if least is None else least)
        climb = self._climbs[level]
        for _ in range(MOST_MOVES):
            if not record.count[climb.home] and not self._is_closed(level, climb.home):
                return climb.home
            if climb.descending:
                proposal = self._descend(level, climb, record)
            else:
                proposal = self._climb(level, climb, record)
            if proposal is not None:
                return proposal
            if climb.restarts > self.parameters.restarts:
                return None
        return None

    def _climb(self, level: int, climb: LevelClimb, record: LevelCosts) -> int | None:
        """Take Model Analyzer's step: return a probe to measure, or move home and return None."""
        home_cost = self._cost(record, climb.home)
        if climb.kept and home_cost > 1.0 and not climb.slow:
            self._step_back(level, climb, record)
            return None
        climb.kept |= home_cost <= 1.0
        around = self._around(climb.home, self.parameters.radius)
        probes = around[record.count[around] > 0]
        slow = climb.slow or len({bool(cost <= 1.0) for cost in (home_cost, *record.cost[probes])}) > 1
        if slow:
            around = self._around(climb.home, 1.0)
        unmeasured = self._unmeasured(level, around)
        if unmeasured.size and (slow or probes.size < self.parameters.probes):
            return int(unmeasured[0]) if slow else self._newest_values(unmeasured, probes)
        new = (
            self._cheapest_around(around, climb.home, record)
            if slow
            else self._next_home(climb.home, probes, record)
        )
        if new in self._homes[level]:
            least = record.least()
            climb.descending, climb.home = True, climb.home if least is None else least
        else:
            self._move(level, new)
        return None

    def _descend(self, level: int, climb: LevelClimb, record: LevelCosts) -> int | None:
        """Return a direct neighbour of home to measure; with all measured, move to the best, or restart."""
        around = self._around(climb.home, 1.0)
        unmeasured = self._unmeasured(level, around)
        if unmeasured.size:
            return int(unmeasured[0])
        least = self._cheapest_around(around, climb.home, record)
        if least != climb.home:
            climb.home = least
            return None
        climb.restarts += 1
        if climb.restarts <= self.parameters.restarts:
            climb.descending = climb.slow = climb.kept = False
            self._homes[level] = set()
            self._move(level, self._far_away(climb.home, level, record))
        return None

    def _move(self, level: int, home: int) -> None:
        climb = self._climbs.setdefault(level, LevelClimb(home=home))
        climb.home, climb.slow = home, False
        self._homes.setdefault(level, set()).add(home)

    def _step_back(self, level: int, climb: LevelClimb, record: LevelCosts) -> None:
        """Move from a home that broke the SLO toward the best so far, and be slow there."""
        best = record.least()
        around = self._around(climb.home, self.parameters.radius)
        if best is not None and around.size:
            self._move(level, int(around[np.argmin(self.space.distances(best)[around])]))
        climb.slow = True

    def _around(self, home: int, radius: float) -> np.ndarray:
        """Return other configurations within a radius, those equal in effect once.   # (n,) int64."""
        region = np.unique(self.space.canonical[self.space.region(home, radius)])
        return np.asarray(region[region != home])

    def _newest_values(self, unmeasured: np.ndarray, probes: np.ndarray) -> int:
        """Return the unmeasured configuration with the most knob values that no probe has."""
        steps = self.space.coordinates
        new = np.zeros(unmeasured.size, dtype=np.int64)
        for knob in range(steps.shape[1]):
            new += ~np.isin(steps[unmeasured, knob], steps[probes, knob])
        return int(unmeasured[np.argmax(new)])

    def _next_home(self, home: int, probes: np.ndarray, record: LevelCosts) -> int:
        """Return the configuration to which the probes' pulls move home."""
        away = (self.space.coordinates[probes] - self.space.coordinates[home]).astype(np.float64)
        home_cost = self._cost(record, home)
        if home_cost == np.inf:  # it cannot be measured, and any probe is better
            pull = np.full(probes.size, 2.0)
        else:
            pull = 2.0 * (home_cost - record.cost[probes]) / np.maximum(home_cost + record.cost[probes], 1e-9)
        total = np.abs(away).sum(axis=0)
        vector = (np.sign(away) * pull[:, None]).sum(axis=0) / np.maximum(total, 1.0)
        steps = np.sign(vector) * np.searchsorted(THRESHOLDS, np.abs(vector), side="left")
        highest = np.array(self.space.shape) - 1
        moved = np.clip(self.space.coordinates[home] + steps.astype(np.int64), 0, highest)
        return int(self.space.canonical[np.ravel_multi_index(tuple(moved), self.space.shape)])

    def _cheapest_around(self, around: np.ndarray, home: int, record: LevelCosts) -> int:
        """Return home or the measured neighbour that is cheaper than it and than the others."""
        known = around[record.count[around] > 0]
        if known.size and record.cost[known].min() < self._cost(record, home):
            return int(known[np.argmin(record.cost[known])])
        return home

    def _far_away(self, home: int, level: int, record: LevelCosts) -> int:
        """Return the configuration farthest from all that were measured, or from home if none was.

        Among equals it is drawn.
        """
        known = record.measured if record.measured.size else np.array([home])
        distances = np.min([self.space.distances(int(c)) for c in known], axis=0)
        open_ones = self._unmeasured(level, self.space.distinct)
        if not open_ones.size:
            return int(known[0])
        farthest = open_ones[distances[open_ones] == distances[open_ones].max()]
        return int(self._generator.choice(farthest))

    @staticmethod
    def _cost(record: LevelCosts, configuration: int) -> float:
        """Return the mean cost of a configuration; infinite if it was not measured."""
        return float(record.cost[configuration]) if record.count[configuration] else np.inf
