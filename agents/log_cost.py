"""Costs as logarithms, as the learners need them.

In overload costs are 30 times as large as elsewhere, and one such window would outweigh a hundred others. As
a logarithm, a tenth less is worth the same everywhere.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["SMALLEST_COST", "log_cost", "log_costs"]

SMALLEST_COST = 1e-9
"""Smaller costs count as this one, so that 0 has a logarithm. Costs that can be measured are far above it: a
model that uses a hundredth of one of 192 cores costs 5e-5."""


def log_cost(cost: float) -> float:
    """Return the logarithm of a cost."""
    return math.log(max(cost, SMALLEST_COST))


def log_costs(costs: np.ndarray) -> np.ndarray:
    """Return the logarithms of costs."""
    return np.asarray(np.log(np.maximum(costs, SMALLEST_COST)))
