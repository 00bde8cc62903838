"""How every agent chooses among the configurations that are allowed."""

from __future__ import annotations

import numpy as np

from tuner.agents.agent import State
from tuner.knobs import KnobSpace

__all__ = ["allowed_numbers", "cheapest", "stay"]


def allowed_numbers(space: KnobSpace, allowed: np.ndarray | None) -> np.ndarray:
    """Return the numbers of the configurations that may be chosen.   # (n,) int64, n >= 1.

    Args:
        space: The configurations.
        allowed: Their numbers; None for all, of those equal in effect one.

    Raises:
        ValueError: There are none, or they are no numbers of configurations, as a mask is not.
    """
    if allowed is None:
        return space.distinct
    if len(allowed) == 0:
        raise ValueError("at least one configuration must be allowed")
    numbers = np.asarray(allowed)
    if numbers.dtype.kind not in "iu" or not 0 <= numbers.min() <= numbers.max() < space.size:
        raise ValueError(
            f"`allowed` must hold whole numbers in 0..{space.size - 1} (not a mask), but got {allowed=}"
        )
    return numbers.astype(np.int64, copy=False)


def cheapest(costs: np.ndarray, allowed: np.ndarray, state: State) -> int | None:
    """Return the allowed configuration with the least cost; None if no cost is known.

    Among equals the configuration in force wins, because staying is free, then the lowest number.

    Args:
        costs: Cost of each allowed configuration; NaN if unknown.   # (n,)
        allowed: Numbers of the configurations.   # (n,)
        state: Holds the configuration in force.
    """
    if np.isnan(costs).all():
        return None
    equals = allowed[costs == np.nanmin(costs)]
    return state.configuration if state.configuration in equals else int(equals.min())


def stay(state: State, allowed: np.ndarray) -> int:
    """Return the configuration in force, or the first allowed one if it is not allowed."""
    return state.configuration if state.configuration in allowed else int(allowed[0])
