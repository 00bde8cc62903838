"""The pools worth a simulation: those to which nothing can be added, highest ceiling first.

A session that must answer a ``quantile`` of its requests within the SLO may leave out the largest. So a base
type is here one that meets the SLO at that quantile of the sizes, not at the largest size that ever comes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tuner.planning.pools.bound import Terms, bounds
from tuner.planning.pools.catalogue import Offers
from tuner.planning.pools.ceiling import STEEPEST, kept_mass
from tuner.planning.pools.pool import pools_within, ranked
from tuner.rounding import ROUNDING
from tuner.workload.sizes import SizeDistribution

__all__ = ["Candidates", "kept_sizes", "make_candidates", "rough_ceilings"]

MOST = 2000
"""Most pools whose ceilings are computed: those with the highest bounds (eq. 15)."""
GROUPS = 40
"""Groups of sizes, about equally frequent; sizes within a group count as one."""
STEPS = 40
"""Gradient steps for the ceilings: with so few they are a few percent too high, but in the right order."""
TOO_LONG = 1e9
"""Seconds that stand for a size that misses the SLO: finite, so that shares of the work stay numbers."""


class Candidates(NamedTuple):
    """Pools by descending ceiling."""

    pools: np.ndarray  # (n, T) instances
    ceiling: np.ndarray  # (n,) requests/s, roughly
    homogeneous: np.ndarray  # (n,) bool: instances of one type, which serves the session alone
    total: int  # pools within the budget


def kept_sizes(sizes: SizeDistribution, quantile: float) -> SizeDistribution:
    """Return the sizes without the largest requests that the quantile allows to be late."""
    kept = np.where(kept_mass(sizes.probability, quantile) > 0, sizes.probability, 0.0)
    return SizeDistribution(name=sizes.name, probability=kept)


def make_candidates(offers: Offers, terms: Terms, slo: float, mass: np.ndarray, budget: float) -> Candidates:
    """Return the candidates within a budget.

    Args:
        offers: What can be rented.
        terms: Of the kept sizes.
        slo: s.
        mass: Share of all requests that have a size and must be served in time.   # (S+1,)
        budget: $/h.
    """
    useful = terms.base | (terms.share > 0)
    most = np.where(useful, offers.max_count, 0)
    pools = pools_within(offers.price, most, terms.base, budget)
    left = budget * (1 + ROUNDING) - pools @ offers.price
    full = ((pools >= most) | (offers.price > left[:, None])).all(axis=1)
    alone = ((pools > 0).sum(axis=1) == 1) & _largest_alone(pools, offers, most, budget)
    chosen = np.flatnonzero(full | alone)
    if chosen.size > MOST:
        bound = bounds(pools[chosen], terms)
        first = chosen[np.argsort(-bound, kind="stable")[:MOST]]
        chosen = np.union1d(first, np.flatnonzero(alone))
    ceiling = rough_ceilings(pools[chosen], offers.latency, slo, mass)
    order = ranked(ceiling, pools[chosen] @ offers.price)
    chosen = chosen[order]
    return Candidates(pools[chosen], ceiling[order], alone[chosen], len(pools))


def _largest_alone(pools: np.ndarray, offers: Offers, most: np.ndarray, budget: float) -> np.ndarray:
    """Whether a pool has as many of each of its types as the budget buys of that type alone.   # (n,)."""
    affordable = np.minimum(budget * (1 + ROUNDING) // offers.price, most)
    return np.asarray(((pools == affordable) | (pools == 0)).all(axis=1))


def rough_ceilings(pools: np.ndarray, latency: np.ndarray, slo: float, mass: np.ndarray) -> np.ndarray:
    """Return about the ceilings of many pools at once; `ceiling.py` explains them.   # (n,) requests/s.

    Args:
        pools: Instances of each type.   # (n, T)
        latency: Execution time by type and items.   # (T, S+1) s
        slo: s.
        mass: Share of all requests that have a size and must be served in time.   # (S+1,)
    """
    times, weight = _grouped(latency, slo, mass)  # (T, K), (K,)
    number = np.maximum(pools, 1e-9)  # (n, T)
    worth = np.where(pools > 0, 1.0, 0.0)
    worth /= worth.sum(axis=1, keepdims=True)
    dearest = np.zeros(len(pools))
    for step in range(STEPS):
        price = np.where(pools > 0, worth / number, np.inf)  # (n, T)
        costs = price[:, :, None] * times  # (n, T, K)
        cheapest = costs.argmin(axis=1)  # (n, K)
        part = np.take_along_axis(costs, cheapest[:, None, :], axis=1)[:, 0] * weight  # (n, K)
        cost = part.sum(axis=1)  # (n,)
        dearest = np.maximum(dearest, cost)
        kinds = np.arange(pools.shape[1])
        load = (part[:, None, :] * (cheapest[:, None, :] == kinds[:, None])).sum(axis=2) / cost[:, None]
        slope = np.minimum(load / np.maximum(worth, 1e-12) - 1, STEEPEST)
        worth = worth * np.exp(slope * 0.5 / np.sqrt(1 + step))
        worth /= worth.sum(axis=1, keepdims=True)
    return 1 / dearest


def _grouped(latency: np.ndarray, slo: float, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean time by type and group of sizes, and the share of each group.   # (T, K) s, (K,).

    The time is ``TOO_LONG`` where a size of the group misses the SLO.
    """
    come = np.flatnonzero(mass)
    share = mass[come]
    group = np.minimum((np.cumsum(share) - share / 2) / share.sum() * GROUPS, GROUPS - 1).astype(int)
    group = np.unique(group, return_inverse=True)[1]
    weight = np.bincount(group, weights=share)
    work = np.where(latency[:, come] <= slo, latency[:, come], TOO_LONG) * share
    mean = np.stack([np.bincount(group, weights=row) for row in work]) / weight
    return np.where(mean < TOO_LONG / 1e3, mean, TOO_LONG), weight
