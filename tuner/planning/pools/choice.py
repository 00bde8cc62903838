"""Kairos's choice of a pool from upper bounds alone, without trying any (section 5.2).

If the three highest bounds have the same number of base instances, the highest is taken. Otherwise, of the
ten highest, the one with the least summed squared distance to the other nine: pools of high throughput lie
near one another, and the centre is a safer guess than the peak of a bound. Of several base types, "the same
number" means of each.

Where we go further: if the highest bound is that of a pool without auxiliary instances, it is taken. The
paper has one base type, which is dear, and never sees this. Where a cheap type meets the SLO at all
sizes, such a bound promises nothing that a lack of base instances could break, and there is no risk to hedge.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["CANDIDATES", "Choice", "Homogeneous", "best_homogeneous", "choose"]

AGREEING = 3
"""Pools whose base instances are compared."""
CANDIDATES = 10
"""Pools among which the distance decides."""


class Choice(NamedTuple):
    """Which pool, and how it was found."""

    pool: int  # index into the pools
    agreed: bool  # the highest bounds have the same base instances
    alone: bool  # the highest bound needs no auxiliary instances
    distance: np.ndarray  # (min(n, CANDIDATES),) summed squared distance of each candidate, best bound first


class Homogeneous(NamedTuple):
    """The best pool of one base type, against which mixed pools are measured."""

    kind: int  # index of the type
    instances: int
    rate: float  # requests/s
    scaled_rate: float  # requests/s, as if the whole budget were used, if there is so much (section 8.1)


def choose(pools: np.ndarray, order: np.ndarray, base: np.ndarray) -> Choice:
    """Choose among ranked pools.

    Args:
        pools: Instances of each type.   # (n, T), n >= 1
        order: Indices of the pools, highest bound first.   # (n,)
        base: Whether a type meets the SLO at the largest size.   # (T,)
    """
    candidates = pools[order[:CANDIDATES]].astype(np.int64)
    gaps = candidates[:, None, :] - candidates[None, :, :]
    distance = (gaps**2).sum(axis=(1, 2))
    top = candidates[:AGREEING, base]
    agreed = bool((top == top[0]).all())
    alone = not candidates[0, ~base].any()
    best = 0 if agreed or alone else int(distance.argmin())
    return Choice(int(order[best]), agreed, alone, distance)


def best_homogeneous(
    price: np.ndarray, max_count: np.ndarray, base_rate: np.ndarray, budget: float
) -> Homogeneous:
    """Return the best pool of one base type, its throughput scaled up by the part of the budget left over.

    It is not scaled up where no more instances of the type can be rented.

    Args:
        price: Of one instance of each type, $/h.   # (T,)
        max_count: Most instances of each type.   # (T,)
        base_rate: Requests/s of one instance of each type; 0 if it misses the SLO at some size.   # (T,)
        budget: $/h; buys at least one instance of a base type.
    """
    count = np.minimum((budget * (1 + 1e-9)) // price, max_count)
    scaled = np.where(count > 0, base_rate * np.minimum(budget / price, max_count), 0.0)
    best = int(scaled.argmax())
    return Homogeneous(best, int(count[best]), float(count[best] * base_rate[best]), float(scaled[best]))
