"""The oracle: knows the expected cost of every configuration, and always chooses the least.

It measures nothing and explores nothing, and no agent can do better. It exists only where all costs can be
computed beforehand: in simulation, or after an exhaustive sweep. It chooses for the rate of the last window,
where that is known: the middle of a load level is up to 12 % off, and near overload another configuration is
the best there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tuner.agents.agent import State
from tuner.agents.bookkeeper import Bookkeeper, Parameters
from tuner.agents.choice import allowed_numbers, cheapest
from tuner.agents.load_levels import without_neighbours
from tuner.agents.policy_file import StoredArrays
from tuner.knobs import KnobSpace

__all__ = ["OracleAgent"]

Expected = Callable[[float], np.ndarray]
"""Rate, requests/s -> expected cost of every configuration.   # (size,)"""

STEP = math.log(1.05)
"""Rates are rounded to steps of 5 %, so that few tables are asked for; simulations round theirs alike."""


class OracleAgent(Bookkeeper[Parameters]):
    """The agent.

    Args:
        space: The configurations.
        parameters: The constants.
        seed: Nothing is drawn.
        expected: Gives the costs; it is called once per rounded rate. Without it only the rates of a saved
            oracle are known, and others are taken to be like the nearest of them.
    """

    name = "oracle"

    def __init__(
        self,
        space: KnobSpace,
        parameters: Parameters | None = None,
        *,
        seed: int = 0,
        expected: Expected | None = None,
    ) -> None:
        super().__init__(space, parameters, seed=seed)
        self._expected = expected
        self._tables: dict[int, np.ndarray] = {}  # by the number of steps above 1 request/s

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Choose the allowed configuration with the least expected cost."""
        return self.best(state, allowed)

    def best(self, state: State, allowed: np.ndarray | None = None) -> int:
        """The same as :meth:`select`."""
        allowed = allowed_numbers(self.space, allowed)
        best = cheapest(self._costs_at(self._step(state))[allowed], allowed, state)
        return self._best_unmeasured(state, allowed) if best is None else best

    def costs(self, level: int) -> np.ndarray:
        """Return the expected cost of every configuration in the middle of a load level.   # (size,)."""
        return self._costs_at(self._step(State(level=level, configuration=0)))

    def _step(self, state: State) -> int:
        rate = state.rate if state.rate is not None and 0 < state.rate < math.inf else None
        return round(math.log(self.levels.rate(state.level) if rate is None else rate) / STEP)

    def _costs_at(self, step: int) -> np.ndarray:
        if step not in self._tables and self._expected is not None:
            table = np.array(self._expected(math.exp(step * STEP)), dtype=np.float64)
            if table.shape != (self.space.size,):
                raise ValueError(f"expected costs must have shape ({self.space.size},), got {table.shape}")
            self._tables[step] = table
        if not self._tables:
            return np.full(self.space.size, np.nan)
        return self._tables[min(self._tables, key=lambda other: (abs(other - step), other))].copy()

    def _arrays(self) -> dict[str, np.ndarray]:
        steps = sorted(self._tables)
        tables = np.array([self._tables[step] for step in steps], dtype=np.float64)
        return {
            "steps": np.array(steps, dtype=np.int64),
            "expected": tables.reshape(len(steps), self.space.size),
        }

    def _restore(self, arrays: StoredArrays) -> None:
        super()._restore(arrays)
        if "levels" in arrays:  # an older one has tables for the middles of levels
            levels = without_neighbours(arrays.take("levels", (None,), "i"))
            steps = np.round(levels * (math.log(self.levels.ratio) / STEP)).astype(np.int64)
        else:
            steps = arrays.take("steps", (None,), "i")
        tables = arrays.take("expected", (len(steps), self.space.size))
        self._tables = {int(step): tables[i].copy() for i, step in enumerate(steps)}
