"""The paper's perception: a table Q(s, c) whose region around each measurement is updated (eq. 1 and 2).

Qin et al., SC'19, section 4.2.1. Where we differ, each switched by a parameter
(:mod:`tuner.agents.rrl.table.presets` has the paper's values):

* *Learning rate.* ``a = (weight / summed weight) ** rate_exponent``, counted per state and configuration; a
  measurement weighs 1 and an estimate less, so that estimates never outweigh what was measured
  (``estimate_weight = 1``: both weigh the same).
* *Unknown configurations* start at ``q0 = 1/|C|`` in the paper, below every real cost, so each is tried,
  directly or through a neighbour. Once the estimation function is trained its prediction stands in for them.
  A configuration never measured is valued a share ``optimism`` nearer to q0, a share that fades: otherwise
  nothing would ever correct an estimate that is too high (``optimism = 1``: q0 alone for the unknown). A
  level never seen is predicted from the nearest one (``carry``); without ``carry`` it is explored from
  nothing, but the best there is that of the nearest one.
* *Discount.* The load does not depend on the configuration, so the future adds the same expectation to
  all of them and the best configuration is that of gamma = 0; larger values only add noise (the bound of
  theorem 4.1 is Delta / (1 - gamma)). The next load is not known when a window is learned from, so the
  window's own level stands for s_(t+1). Learned costs are kept beside Q without the future.
"""

from __future__ import annotations

import math

import numpy as np

from tuner.agents.agent import State
from tuner.agents.load_levels import nearest_level
from tuner.agents.log_cost import SMALLEST_COST
from tuner.agents.policy_file import StoredArrays
from tuner.agents.rrl.network.estimator import Estimator
from tuner.agents.rrl.network.network import layer_shapes
from tuner.agents.rrl.table.level_table import LevelTable
from tuner.agents.rrl.table.parameters import TableParameters
from tuner.agents.rrl.table.region import region_update
from tuner.agents.trainer import Trainer
from tuner.knobs import KnobSpace

__all__ = ["TablePerception"]

TRANSFERRED_SAMPLES = 256
"""Windows of a simulation or another server that the estimation function keeps training on after a transfer:
few enough that windows of the new server soon outnumber them."""
OPTIMISM_WINDOWS = 10.0
"""Windows measured at a level until optimism is 0.7 of its start; it fades with one over their root."""


class TablePerception:
    """What configurations are thought to cost, one table per load level.

    Args:
        space: The configurations.
        parameters: The constants.
        seed: Of the estimation function.
        synchronous: Train the estimation function inside :meth:`learn`.

    Attributes:
        tables: What is known, by load level.
        estimator: The estimation function f.
        q0: Q of the unknown.
    """

    def __init__(
        self, space: KnobSpace, parameters: TableParameters, *, seed: int = 0, synchronous: bool = False
    ) -> None:
        self.space = space
        self.parameters = parameters
        self.tables: dict[int, LevelTable] = {}
        self.q0 = parameters.q0 if isinstance(parameters.q0, float | int) else 1.0 / space.size
        self._regions: dict[int, np.ndarray] = {}
        self.estimator = Estimator(
            space.features(),
            parameters.estimator,
            seed=seed,
            background=not synchronous,
            unit=parameters.unit,
        )

    def learn(self, state: State, configuration: int, cost: float, next_state: State) -> None:
        """Update the region of a configuration that showed a cost (eq. 2)."""
        p, level = self.parameters, state.level
        if p.q0 == "first" and not self.tables:
            self.q0 = cost
        table = self._table(level)
        region = self._region(configuration)
        self.estimator.observe(level, configuration, cost)
        estimates = self.estimator.estimates(level, region, configuration, cost)  # eq. 1
        table.cost[region[table.evidence[region] == 0]] = 0.0  # not NaN; its rate is 1, so the value is lost
        rates = table.weigh(region, configuration, p.estimate_weight) ** p.rate_exponent
        own = rates if p.learning_rate is None else np.full(region.size, p.learning_rate)
        future = p.gamma * float(self._table(next_state.level).q.min()) if p.gamma else 0.0
        region_update(table.q, region, estimates, own, future)  # eq. 2
        region_update(table.cost, region, estimates, rates, 0.0)
        table.visits[configuration] += 1
        table.windows += 1

    def windows(self, level: int) -> int:
        """Return how many windows were learned from at a level."""
        table = self._known(level)
        return table.windows if table else 0

    def costs(self, level: int) -> np.ndarray:
        """Return the learned cost of one window per configuration; NaN if unknown.   # (size,)."""
        table = self._known(level)
        return np.full(self.space.size, np.nan) if table is None else table.cost.copy()

    def cautious(self, state: State, configurations: np.ndarray) -> np.ndarray:
        """Return learned costs with one standard error added; NaN if unknown.   # (n,).

        Those of a level that was never seen are the nearest one's.
        """
        level = state.level
        table, change = self._known(level), np.ones(configurations.size)
        if table is None or not table.windows:
            table, change = self._nearest(level, configurations)
        error = self.parameters.noise / np.sqrt(np.maximum(table.evidence[configurations], 1e-9))
        return np.asarray(change * table.cost[configurations] * (1.0 + error))

    def scale(self, state: State, values: np.ndarray) -> float:
        """Return the cost that a relative temperature refers to: the least learned, else the least value."""
        table = self._known(state.level)
        least = table.least() if table else None
        return max(least[1] if least else float(values.min()), SMALLEST_COST)

    def values(self, state: State, configurations: np.ndarray) -> np.ndarray:
        """Return costs by which to explore: Q or a prediction, less some optimism.   # (n,)."""
        level = state.level
        table = self._known(level) or LevelTable.empty(self.space.size, self.q0)
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

    def transfer(self) -> None:
        """Turn everything learned so far into a prior; see :meth:`RRL.transfer`."""
        for table in self.tables.values():
            np.minimum(table.evidence, self.parameters.estimate_weight, out=table.evidence)
            table.visits[:] = 0
            table.windows = min(table.windows, self.parameters.transfer_windows)
        self.estimator.thin(TRANSFERRED_SAMPLES)

    @property
    def trainer(self) -> Trainer:
        """Trains the network."""
        return self.estimator.trainer

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything learned as arrays, which :meth:`restore` reads."""
        levels, first = sorted(self.tables), self.estimator.first_level
        tables = [self.tables[level] for level in levels]
        arrays = {
            "levels": np.array(levels, dtype=np.int64),
            "windows": np.array([table.windows for table in tables], dtype=np.int64),
            "samples": self.estimator.samples(),
            "first_level": np.array([] if first is None else [first], dtype=np.int64),
            "q0": np.array([self.q0]),
        }
        kinds = {"q": np.float64, "cost": np.float64, "evidence": np.float64, "visits": np.int64}
        for name, kind in kinds.items():
            rows = np.array([getattr(table, name) for table in tables], dtype=kind)
            arrays[name] = rows.reshape(len(tables), self.space.size)
        return arrays | {f"weight_{i}": array for i, array in enumerate(self.estimator.weights)}

    def restore(self, arrays: StoredArrays) -> None:
        """Take over what :meth:`arrays` returned.

        Raises:
            ValueError: A value is out of range.
            StorageError: An array is missing or of another shape.
        """
        self.tables = _stored_tables(arrays, self.space.size)
        self.q0 = float(arrays.take("q0", (1,))[0])
        shapes = layer_shapes(self.estimator.inputs, self.parameters.estimator.hidden)
        weights = [arrays.take(f"weight_{i}", shape) for i, shape in enumerate(shapes)]
        samples = arrays.take("samples", (None, 3))
        finite = all(np.isfinite(array).all() for array in (*weights, samples))
        inside = (samples[:, 1] >= 0) & (samples[:, 1] < self.space.size) & (samples[:, 2] >= 0)
        if not (finite and np.isfinite(self.q0) and inside.all()):
            raise ValueError("its estimator has values out of range")
        first = arrays.take("first_level", (None,), "i")
        self.estimator.restore(tuple(weights), samples, int(first[0]) if first.size else None)

    def _key(self, level: int) -> int:
        return 0 if self.parameters.shared_table else level

    def _known(self, level: int) -> LevelTable | None:
        return self.tables.get(self._key(level))

    def _table(self, level: int) -> LevelTable:
        key = self._key(level)
        if key not in self.tables:
            self.tables[key] = LevelTable.empty(self.space.size, self.q0)
        return self.tables[key]

    def _region(self, configuration: int) -> np.ndarray:
        if configuration not in self._regions:
            self._regions[configuration] = self.space.region(configuration, self.parameters.delta)
        return self._regions[configuration]

    def _predict(self, level: int, configurations: np.ndarray) -> np.ndarray:
        """Return the estimated cost of configurations unknown at a level; NaN without estimate.   # (n,)."""
        table = self._known(level)
        if table is not None and (least := table.least()) is not None:
            if not self.estimator.trained:
                return np.full(configurations.size, np.nan)
            anchor, cost = least
            return cost * self.estimator.ratios(level, configurations, anchor)
        if not self.parameters.carry:
            return np.full(configurations.size, np.nan)
        nearest, change = self._nearest(level, configurations)
        return np.asarray(nearest.cost[configurations] * change)

    def _nearest(self, level: int, configurations: np.ndarray) -> tuple[LevelTable, np.ndarray]:
        """Return the table of the nearest level that was seen, and the factors from its costs to those here.

        Returns:
            A table in which nothing is known, if none was seen; and the factors that the estimation function
            gives for the change of load, 1 if nothing is to be carried.   # (n,)
        """
        seen = [other for other, table in self.tables.items() if table.windows]
        if not seen:
            return LevelTable.empty(self.space.size, self.q0), np.ones(configurations.size)
        nearest = nearest_level(seen, level)
        if not self.parameters.carry:
            return self.tables[nearest], np.ones(configurations.size)
        limit = math.log(self.parameters.estimator.ratio_limit)
        here, there = (self.estimator.log_costs(at, configurations) for at in (level, nearest))
        return self.tables[nearest], np.exp(np.clip(here - there, -limit, limit))


def _stored_tables(arrays: StoredArrays, size: int) -> dict[int, LevelTable]:
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
        raise ValueError("its tables have values out of range")
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
