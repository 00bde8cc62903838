"""A throughput that no distribution policy can exceed on a pool; eq. 15 of the Kairos paper can be exceeded.

Eq. 15 gives auxiliary instances small requests of all sizes alike. A policy that gives them only the sizes at
which they are strongest can serve more: with the paper's figures the oracle serves up to 14 % more.

The ceiling is the dual of the linear program that assigns sizes to types. Each instance of type i has a price
w_i per second. Under any policy a request of k items costs at least c_k, the least w_i L_i(k) of the types
that meet the SLO at k, and the pool earns sum(n_i w_i) per second. So throughput <= sum(n_i w_i) / E[c] holds
for all prices; exponentiated gradient steps find prices that make it tight.

Where only a ``quantile`` of the requests must meet the SLO, the others need not be served at all. As c_k
never falls with k, those that cost most are the largest.
"""

from __future__ import annotations

import numpy as np

__all__ = ["STEEPEST", "ceilings", "kept_mass"]

STEPS = 400
"""Gradient steps; with the paper's figures the ceiling is then within 0.5 % of its limit."""
STEEPEST = 5.0
"""Largest gradient that a step follows, so that a type with a price near 0 does not jump to the top."""
LEAST = 1e-12
"""Share of the requests below which it is a rounding error of the sum of all."""


def ceilings(
    pools: np.ndarray, latency: np.ndarray, slo: float, probability: np.ndarray, quantile: float = 1.0
) -> np.ndarray:
    """Return a throughput that cannot be exceeded by each pool.   # (n,) requests/s.

    Args:
        pools: Instances of each type; the time grows with n, so give the few that matter.   # (n, T)
        latency: Execution time by type and items, never falling.   # (T, S+1) s
        slo: s.
        probability: Of each size.   # (S+1,); [0] is 0
        quantile: Share of the requests that must meet the SLO.
    """
    mass = kept_mass(probability, quantile)
    kept = np.flatnonzero(mass)
    times = np.where(latency <= slo, latency, np.inf)[:, kept]  # (T, K) s
    return np.array([_ceiling(counts, times, mass[kept]) for counts in np.asarray(pools)])


def kept_mass(probability: np.ndarray, quantile: float) -> np.ndarray:
    """Return the share of all requests that have a size and must meet the SLO; the largest need not.

    Args:
        probability: Of each size.   # (S+1,)
        quantile: Share of the requests that must meet the SLO: what is returned adds up to it.   # (S+1,)
    """
    mass = np.diff(np.minimum(np.cumsum(probability), quantile), prepend=0.0)
    return np.where(mass > LEAST, mass, 0.0)


def _ceiling(counts: np.ndarray, times: np.ndarray, probability: np.ndarray) -> float:
    """Return the ceiling of one pool; 0 if it cannot serve all that must be."""
    rented = counts > 0
    number, work = counts[rented].astype(float), times[rented]  # (R,), (R, K) s
    if not np.isfinite(work).any(axis=0).all():
        return 0.0
    worth = np.full(number.size, 1 / number.size)  # (R,) n_i w_i, adding up to 1
    dearest = 0.0
    for step in range(STEPS):
        costs = (worth / number)[:, None] * work  # (R, K)
        cheapest = costs.argmin(axis=0)
        part = costs[cheapest, np.arange(cheapest.size)] * probability  # (K,)
        cost = float(part.sum())  # E[c]
        dearest = max(dearest, cost)
        load = np.bincount(cheapest, weights=part, minlength=number.size) / cost  # (R,) share of the work
        slope = np.minimum(load / np.maximum(worth, 1e-12) - 1, STEEPEST)
        worth = worth * np.exp(slope * 0.5 / np.sqrt(1 + step))
        worth /= worth.sum()
    return 1 / dearest
