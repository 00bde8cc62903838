"""A throughput that no distribution policy whatever can exceed on a pool, unlike eq. 15 of the Kairos paper.

Eq. 15 gives auxiliary instances small queries of all sizes alike. A policy that gives them just those at
which they are strongest can serve more: the oracle up to 14 % with the paper's figures. Here instances rent
out their time at prices ``w`` per second. Whatever a policy does, a query of k items costs at least
c_k = min over the types that keep QoS at k of w_i L_i(k), and the pool earns sum(n_i w_i) per second, so
throughput <= sum(n_i w_i) / E[c]. That is true for any prices (the dual of the linear program that shares out
sizes among types); good prices make it tight. They are found by exponentiated gradient steps.

Where only a ``quantile`` of the queries must keep QoS, the others may as well not be served. As c_k never
falls with k, those that cost most are the largest.
"""

from __future__ import annotations

import numpy as np

__all__ = ["ceilings"]

STEPS = 400
"""Within 0.5 % of the limit of many steps with the paper's figures."""
STEEPEST = 5.0
"""Of a step's exponent, before its size."""


def ceilings(
    pools: np.ndarray, latency: np.ndarray, qos: float, probability: np.ndarray, quantile: float = 1.0
) -> np.ndarray:
    """Return a throughput that cannot be exceeded by each pool.   # (n,) queries/s.

    Args:
        pools: Instances of each type; the time grows with n, so give the few that matter.   # (n, T)
        latency: Execution time by type and items, never falling.   # (T, S+1) s
        qos: The QoS target, s.
        probability: Of a query of so many items.   # (S+1,); [0] is 0
        quantile: The part of the queries that must keep QoS.
    """
    come = np.flatnonzero(probability)
    kept = np.diff(np.minimum(np.cumsum(probability[come]), quantile), prepend=0.0)  # (K,) of the smallest
    served = kept > 0
    kept = kept[served]
    times = np.where(latency <= qos, latency, np.inf)[:, come[served]]  # (T, K) s
    return np.array([_ceiling(counts, times, kept) for counts in np.asarray(pools)])


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
