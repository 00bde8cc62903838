"""Pools of instances: all that a budget buys, and their order by upper bound."""

from __future__ import annotations

import numpy as np

from tuner.errors import InvalidInput
from tuner.rounding import ROUNDING

__all__ = ["MOST_POOLS", "pools_within", "ranked"]

MOST_POOLS = 5_000_000
"""Above this the catalogue or the budget is taken for a mistake."""


def pools_within(price: np.ndarray, max_count: np.ndarray, base: np.ndarray, budget: float) -> np.ndarray:
    """Return all pools within a budget that hold at least one instance of a base type.

    Without one the pool cannot serve the largest requests within the SLO, and its throughput is 0. With the
    types of the paper and 2.5 $/h these are 331 of the 697 combinations that the budget and the counts allow.

    Args:
        price: Of one instance of each type, $/h.   # (T,)
        max_count: Most instances of each type.   # (T,)
        base: Whether a type meets the SLO at the largest size.   # (T,)
        budget: $/h.

    Returns:
        Instances of each type, in lexicographic order.   # (n, T)

    Raises:
        InvalidInput: There are more than five million.
    """
    pools = np.zeros((1, 0), dtype=np.int32)
    left = np.array([budget * (1 + ROUNDING)])  # (n,) $/h
    for cost, most in zip(price.tolist(), max_count.tolist(), strict=True):
        choices = np.minimum(left // cost, most).astype(np.int64) + 1  # (n,) counts 0, 1, ... that fit
        total = int(choices.sum())
        if total > MOST_POOLS:
            problem = f"{budget:g} $/h buys more than {MOST_POOLS:,} different pools"
            raise InvalidInput("budget", problem, "lower it or the `max_count` of cheap types")
        first = np.repeat(np.cumsum(choices) - choices, choices)
        count = np.arange(total) - first
        pools = np.column_stack([np.repeat(pools, choices, axis=0), count.astype(np.int32)])
        left = np.maximum(np.repeat(left, choices) - count * cost, 0.0)
    return pools[(pools[:, base] > 0).any(axis=1)]


def ranked(bound: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Return the indices of pools from the highest bound to the lowest.

    Of equal bounds the cheaper pool comes first: instances that the bottleneck leaves idle are not worth it.

    Args:
        bound: Of the throughput.   # (n,) requests/s
        cost: Of the pool.   # (n,) $/h
    """
    if bound.size == 0:
        return np.zeros(0, dtype=np.int64)
    return np.lexsort((np.round(cost, 9), -np.round(bound / bound.max(), 12)))
