"""The oracle: knows the expected cost of every configuration, and always chooses the least.

It measures nothing and explores nothing, and no agent can do better. It exists only where all costs can be
computed beforehand: in simulation, or after an exhaustive sweep.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tuner.agents.agent import State
from tuner.agents.bookkeeper import Bookkeeper, Parameters
from tuner.agents.choice import allowed_numbers, cheapest
from tuner.agents.load_levels import nearest_level
from tuner.agents.policy_file import StoredArrays
from tuner.knobs import KnobSpace

__all__ = ["OracleAgent"]

Expected = Callable[[int], np.ndarray]
"""Load level -> expected cost of every configuration.   # (size,)"""


class OracleAgent(Bookkeeper[Parameters]):
    """The agent.

    Args:
        space: The configurations.
        parameters: The constants.
        seed: Nothing is drawn.
        expected: Gives the costs; it is called once per level. Without it only the levels of a saved oracle
            are known, and others are taken to be like the nearest of them.
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
        self._tables: dict[int, np.ndarray] = {}

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Choose the allowed configuration with the least expected cost."""
        return self.best(state, allowed)

    def best(self, state: State, allowed: np.ndarray | None = None) -> int:
        """The same as :meth:`select`."""
        allowed = allowed_numbers(self.space, allowed)
        best = cheapest(self.costs(state.level)[allowed], allowed, state)
        return self._best_unmeasured(state, allowed) if best is None else best

    def costs(self, level: int) -> np.ndarray:
        """Return the expected cost of every configuration.   # (size,)."""
        if level not in self._tables and self._expected is not None:
            table = np.array(self._expected(level), dtype=np.float64)
            if table.shape != (self.space.size,):
                raise ValueError(f"expected costs must have shape ({self.space.size},), got {table.shape}")
            self._tables[level] = table
        if not self._tables:
            return np.full(self.space.size, np.nan)
        return self._tables[nearest_level(self._tables, level)].copy()

    def _arrays(self) -> dict[str, np.ndarray]:
        levels = sorted(self._tables)
        tables = np.array([self._tables[level] for level in levels], dtype=np.float64)
        return {
            "levels": np.array(levels, dtype=np.int64),
            "expected": tables.reshape(len(levels), self.space.size),
        }

    def _restore(self, arrays: StoredArrays) -> None:
        super()._restore(arrays)
        levels = arrays.take("levels", (None,), "i")
        tables = arrays.take("expected", (len(levels), self.space.size))
        self._tables = {int(level): tables[i].copy() for i, level in enumerate(levels)}
