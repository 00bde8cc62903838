"""Region-based reinforcement learning (RRL): one window teaches about a whole region of configurations.

Qin et al., "Swift machine learning model serving scheduling: a region based reinforcement learning
approach", SC'19, section 4, algorithm 1. The state is the load level, the action a configuration. For
each level there is a table Q(s, c). In every window:

1. choose a configuration with probability proportional to ``exp(-beta * Q(s, c))`` (eq. 3);
2. measure its cost r_t; for all configurations within distance delta estimate theirs and update
   ``Q <- (1 - a) Q + a (r_hat + gamma * min_c' Q(s', c'))`` (eq. 2);
3. the policy follows from the new Q.

What the paper leaves open, and where we differ from it:

* *Learning rate.* ``a = (weight / summed weight) ** rate_exponent``, counted per state and
  configuration; a measurement weighs 1 and an estimate less, so that estimates never drown what was
  measured. Sums over measurements are infinite, sums of squares finite, as the theorem asks.
* *Temperature.* beta is in units of one over the least learned cost, so that it needs no tuning per
  model, and grows with the windows seen at the level.
* *Unknown configurations* start at ``q0 = 1/|C|`` in the paper, below every real cost, so each is tried,
  directly or through a neighbour. Once the estimator is trained its prediction stands in for them. What
  was never measured, unknown or estimated, is valued a share ``optimism`` nearer to q0, a share that
  fades: an estimate that is too high would otherwise never be put right (``optimism = 1`` is the paper:
  q0 alone for the unknown). A level never seen is predicted from the nearest one (``carry``).
* *Discount.* The load does not depend on the configuration, so the future adds the same expectation to
  all of them and the best configuration is that of gamma = 0; larger values only add noise (the bound of
  theorem 4.1 is Delta / (1 - gamma)). Learned costs are kept beside Q without the future: :meth:`RRL.costs`,
  :meth:`RRL.best` and :meth:`RRL.explain` are about these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter, ValidationError

from tuner.agents.agent import State
from tuner.agents.estimator import Estimator
from tuner.agents.level_table import LevelTable
from tuner.agents.load_levels import LoadLevels
from tuner.agents.network import layer_shapes
from tuner.agents.policy_file import StoredArrays, check_knobs, damaged, read_policy, write_policy
from tuner.agents.region import boltzmann, region_update
from tuner.agents.rrl_parameters import RRLParameters
from tuner.knobs import KnobSpace

__all__ = ["RRL", "Explanation", "RRLParameters"]

SMALLEST_SCALE = 1e-3
"""Least learned cost that the temperature refers to."""
HEARSAY_SAMPLES = 256
"""Windows of a simulation or another server that the estimator keeps training on."""
OPTIMISM_WINDOWS = 10.0
"""Windows measured at a level until optimism is 0.7 of its start; it fades with one over their root."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Why the agent thinks of a configuration as it does. Costs are of one window; NaN stands for unknown."""

    level: int
    configuration: int
    text: str
    """The configuration as people write it."""
    cost: float
    """Learned cost."""
    visits: int
    """Windows in which it was measured at this level."""
    windows: int
    """Windows learned from at this level."""
    best: int
    """The best known configuration among those allowed."""
    best_text: str
    best_cost: float
    probability: float
    """With which :meth:`RRL.select` would choose it now among those allowed; 0 if it is not allowed."""

    def __str__(self) -> str:
        cost = "nothing is known of its cost" if math.isnan(self.cost) else f"learned cost {self.cost:.3f}"
        return (
            f"{self.text}: {cost}, measured in {self.visits} of {self.windows} windows at load level "
            f"{self.level}; best known {self.best_text} ({self.best_cost:.3f}); "
            f"chosen with probability {self.probability:.2f}"
        )


class RRL:
    """The agent: knows nothing at first, learns from every window, and can be saved and loaded.

    Args:
        space: The configurations.
        parameters: The constants.
        seed: Of exploration and of the estimator.
        synchronous: Train the estimator inside :meth:`update`, so that the same seed gives the same
            decisions (simulation, tests), rather than in a thread of its own that delays no window (live).
    """

    def __init__(
        self,
        space: KnobSpace,
        parameters: RRLParameters | None = None,
        *,
        seed: int = 0,
        synchronous: bool = False,
    ) -> None:
        self.space = space
        self.parameters = parameters or RRLParameters()
        self.q0 = 1.0 / space.size if self.parameters.q0 is None else self.parameters.q0
        self.tables: dict[int, LevelTable] = {}
        self._everything = space.distinct
        self._regions: dict[int, np.ndarray] = {}
        self._generator = np.random.default_rng(seed)
        self.estimator = Estimator(
            space.features(), self.parameters.estimator, seed=seed, background=not synchronous
        )

    @property
    def levels(self) -> LoadLevels:
        """The grid of arrival rates that tells states apart."""
        return self.parameters.levels

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Draw a configuration from the Boltzmann policy over those allowed (eq. 3)."""
        allowed = self._allowed(allowed)
        probabilities = self._policy(state.level, allowed)
        drawn = int(np.searchsorted(np.cumsum(probabilities), self._generator.random(), side="right"))
        return int(allowed[min(drawn, allowed.size - 1)])

    def best(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Return the known configuration with the least cost, one standard error added.

        Where nothing allowed is known, a level never seen is predicted from the nearest one, else the
        configuration in force stays. Of equals it takes the one in force, then the lowest number.
        """
        allowed = self._allowed(allowed)
        table, change = self.tables.get(state.level), np.ones(allowed.size)
        if table is None or not table.windows:
            table, change = self._nearest(state.level, allowed)
        error = self.parameters.noise / np.sqrt(np.maximum(table.evidence[allowed], 1e-9))
        values = change * table.cost[allowed] * (1.0 + error)
        if np.isnan(values).all():
            return state.configuration if state.configuration in allowed else int(allowed[0])
        equals = allowed[values == np.nanmin(values)]
        return state.configuration if state.configuration in equals else int(equals.min())

    def update(self, state: State, configuration: int, cost: float, next_state: State) -> None:
        """Learn from one window: update the region of the configuration (eq. 2)."""
        if not (math.isfinite(cost) and cost >= 0):
            raise ValueError(f"a cost to learn from must be finite and at least 0, but got {cost=}")
        p = self.parameters
        table = self._table(state.level)
        region = self._region(configuration)
        self.estimator.observe(state.level, configuration, cost)
        estimates = cost * self.estimator.ratios(state.level, region, configuration)
        table.cost[region[table.evidence[region] == 0]] = 0.0  # its rate is 1: any number will do
        rates = table.weigh(region, configuration, p.estimate_weight) ** p.rate_exponent
        future = p.gamma * float(self._table(next_state.level).q.min()) if p.gamma else 0.0
        region_update(table.q, region, estimates, rates, future)
        region_update(table.cost, region, estimates, rates, 0.0)
        table.visits[configuration] += 1
        table.windows += 1

    def costs(self, level: int) -> np.ndarray:
        """Learned cost of one window per configuration, without the future; NaN if unknown.   # (size,)."""
        table = self.tables.get(level)
        return np.full(self.space.size, np.nan) if table is None else table.cost.copy()

    def explain(self, level: int, configuration: int, allowed: np.ndarray | None = None) -> Explanation:
        """Tell what is known about a configuration at a load level, and how likely it is to be chosen."""
        allowed = self._allowed(allowed)
        table = self.tables.get(level)
        costs = self.costs(level)
        best = self.best(State(level=level, configuration=configuration), allowed)
        return Explanation(
            level=level,
            configuration=configuration,
            text=self.space.format(self.space.decode(configuration)),
            cost=float(costs[configuration]),
            visits=int(table.visits[configuration]) if table else 0,
            windows=table.windows if table else 0,
            best=best,
            best_text=self.space.format(self.space.decode(best)),
            best_cost=float(costs[best]),
            probability=float(self._policy(level, allowed)[allowed == configuration].sum()),
        )

    def transfer(self, *, synchronous: bool = False) -> None:
        """Take everything learned so far as hearsay: it comes from a simulation or from another server.

        Costs stay known but weigh no more than estimates, so that a single measurement outweighs them, and
        the policy is as greedy as after ``transfer_windows``; but all counts as never measured, so that what
        looks nearly as good as the best is tried again. The estimator keeps its weights and a sample of
        its windows.

        Args:
            synchronous: As for the class; false because what follows usually is live.
        """
        for table in self.tables.values():
            np.minimum(table.evidence, self.parameters.estimate_weight, out=table.evidence)
            table.visits[:] = 0
            table.windows = min(table.windows, self.parameters.transfer_windows)
        self.estimator.thin(HEARSAY_SAMPLES)
        self.estimator.background = not synchronous

    def save(self, folder: Path) -> None:
        """Write everything learned to a folder, atomically, without pickle; see ``policy_file.py``.

        Raises:
            StorageError: The folder cannot be written.
        """
        levels = sorted(self.tables)
        tables = [self.tables[level] for level in levels]
        arrays = {
            "levels": np.array(levels, dtype=np.int64),
            "windows": np.array([table.windows for table in tables], dtype=np.int64),
            "samples": self.estimator.samples(),
        }
        for name, kind in (
            ("q", np.float64),
            ("cost", np.float64),
            ("evidence", np.float64),
            ("visits", np.int64),
        ):
            rows = np.array([getattr(table, name) for table in tables], dtype=kind)
            arrays[name] = rows.reshape(len(tables), self.space.size)
        arrays |= {f"weight_{i}": array for i, array in enumerate(self.estimator.weights)}
        write_policy(
            Path(folder),
            space=self.space,
            parameters=_PARAMETERS.dump_python(self.parameters, mode="json"),
            first_level=self.estimator.first_level,
            arrays=arrays,
        )

    @classmethod
    def load(cls, folder: Path, space: KnobSpace, *, seed: int = 0, synchronous: bool = False) -> RRL:
        """Read a saved agent, with the parameters it was saved with.

        Args:
            folder: Where :meth:`save` wrote it.
            space: The knobs and grids it must be about.
            seed: Of exploration from now on.
            synchronous: As for the class.

        Raises:
            InvalidInput: The policy is about other knobs or grids; names the first that differs.
            StorageError: There is no policy, or it is damaged.
        """
        folder = Path(folder)
        manifest, arrays = read_policy(folder)
        check_knobs(folder, manifest, space)
        try:
            parameters = _PARAMETERS.validate_python(manifest.parameters)
        except ValidationError as error:
            raise damaged(folder, "its parameters are not valid") from error
        agent = cls(space, parameters, seed=seed, synchronous=synchronous)
        agent.tables = _tables(folder, arrays, space.size)
        shapes = layer_shapes(agent.estimator.inputs, parameters.estimator.hidden)
        weights = [arrays.take(f"weight_{i}", shape) for i, shape in enumerate(shapes)]
        samples = arrays.take("samples", (None, 3))
        finite = all(np.isfinite(array).all() for array in (*weights, samples))
        inside = (samples[:, 1] >= 0) & (samples[:, 1] < space.size) & (samples[:, 2] >= 0)
        if not (finite and inside.all()):
            raise damaged(folder, "its estimator has values out of range")
        agent.estimator.restore(tuple(weights), samples, manifest.first_level)
        return agent

    def close(self) -> None:
        """Stop background training. May be called twice."""
        self.estimator.close()

    def _allowed(self, allowed: np.ndarray | None) -> np.ndarray:
        if allowed is None:
            return self._everything
        if len(allowed) == 0:
            raise ValueError("at least one configuration must be allowed")
        return np.asarray(allowed, dtype=np.int64)

    def _region(self, configuration: int) -> np.ndarray:
        if configuration not in self._regions:
            self._regions[configuration] = self.space.region(configuration, self.parameters.delta)
        return self._regions[configuration]

    def _table(self, level: int) -> LevelTable:
        if level not in self.tables:
            self.tables[level] = LevelTable.empty(self.space.size, self.q0)
        return self.tables[level]

    def _policy(self, level: int, allowed: np.ndarray) -> np.ndarray:
        table = self.tables.get(level)
        least = table.least() if table else None
        values = self._values(level, allowed)
        scale = max(least[1] if least else float(values.min()), SMALLEST_SCALE)
        probabilities = np.empty(allowed.size)
        boltzmann(values / scale, self.parameters.beta(table.windows if table else 0), probabilities)
        return probabilities

    def _values(self, level: int, configurations: np.ndarray) -> np.ndarray:
        """What the policy weighs: Q, predictions for the unknown, optimism for the unmeasured.   # (n,)."""
        table = self.tables.get(level) or LevelTable.empty(self.space.size, self.q0)
        values = table.q[configurations].copy()
        if self.parameters.optimism == 1:
            return np.asarray(values)
        unknown = table.evidence[configurations] == 0
        if unknown.any():
            predicted = self._predict(level, configurations[unknown])
            values[unknown] = np.where(np.isnan(predicted), self.q0, predicted)
        n = OPTIMISM_WINDOWS
        optimism = self.parameters.optimism * math.sqrt(n / (n + int(table.visits.sum())))
        unmeasured = table.visits[configurations] == 0
        values[unmeasured] += optimism * (self.q0 - values[unmeasured])
        return np.asarray(values)

    def _predict(self, level: int, configurations: np.ndarray) -> np.ndarray:
        """Estimated cost of what is unknown at a level; NaN where there is no telling.   # (n,)."""
        table = self.tables.get(level)
        if table is not None and (least := table.least()) is not None:
            if not self.estimator.trained:
                return np.full(configurations.size, np.nan)
            anchor, cost = least
            return cost * self.estimator.ratios(level, configurations, anchor)
        nearest, change = self._nearest(level, configurations)
        return np.asarray(nearest.cost[configurations] * change)

    def _nearest(self, level: int, configurations: np.ndarray) -> tuple[LevelTable, np.ndarray]:
        """The table of the nearest level that was seen, and what costs there change by on the way here.

        Returns:
            A table in which nothing is known, if none was seen or nothing is to be carried; and the factors
            that the estimator gives for the change of load.   # (n,)
        """
        seen = [other for other, table in self.tables.items() if table.windows]
        if not (self.parameters.carry and seen):
            return LevelTable.empty(self.space.size, self.q0), np.ones(configurations.size)
        nearest = min(seen, key=lambda other: (abs(other - level), other))
        limit = math.log(self.parameters.estimator.ratio_limit)
        here, there = (self.estimator.log_costs(at, configurations) for at in (level, nearest))
        return self.tables[nearest], np.exp(np.clip(here - there, -limit, limit))


_PARAMETERS = TypeAdapter(RRLParameters)


def _tables(folder: Path, arrays: StoredArrays, size: int) -> dict[int, LevelTable]:
    """Read and check the tables of a saved policy."""
    levels = arrays.take("levels", (None,), "i")
    count = len(levels)
    windows = arrays.take("windows", (count,), "i")
    q, cost, evidence = (arrays.take(name, (count, size)) for name in ("q", "cost", "evidence"))
    visits = arrays.take("visits", (count, size), "i")
    known = evidence > 0
    sound = (
        len(set(levels.tolist())) == count
        and np.isfinite(q).all()
        and np.isfinite(cost[known]).all()
        and np.isnan(cost[~known]).all()
        and (evidence >= 0).all()
        and (cost[known] >= 0).all()
        and (visits >= 0).all()
        and (windows >= 0).all()
    )
    if not sound:
        raise damaged(folder, "its tables have values out of range")
    return {
        int(level): LevelTable(
            q=q[i].copy(),
            cost=cost[i].copy(),
            evidence=evidence[i].copy(),
            visits=visits[i].astype(np.int64),
            windows=int(windows[i]),
        )
        for i, level in enumerate(levels)
    }
