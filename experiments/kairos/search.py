"""Kairos+ (algorithm 1) on simulated pools: the best of all pools of a setting, under a policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tuner.experiments.frame.result import Row, row
from tuner.experiments.kairos.cell import Cell, Pool, PoolSetting, PoolSpace, make_space, name_of
from tuner.planning.pools.search import SearchResult, kairos_plus

__all__ = ["QUICK_LIMIT", "PoolSearch", "optimum_rows", "search_pools", "until_best"]

QUICK_LIMIT = 6
"""Evaluations of a quick look."""
Rate = Callable[[Cell, int, float], float]
"""Measures a cell with a seed; what serves less than the last argument may be said to serve nothing."""


class PoolSearch(NamedTuple):
    """A search for the best pool under a policy."""

    setting: PoolSetting
    policy: str = "kairos"
    limit: int | None = None


def search_pools(
    task: PoolSearch, seed: int, rate: Rate, known: Mapping[Pool, float] | None = None
) -> SearchResult:
    """Search the best pool.

    Args:
        task: Where and how long.
        seed: Of the simulations.
        rate: Measures a pool.
        known: Goodputs that were measured before, by pool.
    """
    space, known = make_space(task.setting), known or {}
    best = 0.0  # what serves less is neither the best nor prunes anything by its goodput

    def evaluate(pool: Pool) -> float:
        nonlocal best
        found = known[pool] if pool in known else rate(Cell(task.setting, pool, task.policy), seed, best)
        best = max(best, found)
        return found

    return kairos_plus(space.pools, space.bound, space.order, evaluate, task.limit)


def until_best(found: SearchResult) -> int:
    """Return how many pools were tried when the best had been."""
    return next(
        (n for n, one in enumerate(found.evaluations, 1) if one.pool == found.pool), len(found.evaluations)
    )


def optimum_rows(
    name: str, space: PoolSpace, chosen: Sequence[float], searches: Sequence[SearchResult]
) -> Iterator[Row]:
    """Say which pool is the best in a setting, where it stands among the bounds, and how near Kairos is.

    Args:
        name: Of the setting.
        space: Its pools.
        chosen: What Kairos's choice serves, per seed, requests/s.
        searches: For the best pool, one per seed.
    """
    order = space.highest()
    pools = [one.pool or space.chosen for one in searches]
    places = [float(order.index(pool) + 1) for pool in pools]
    shares = [100 * rate / max(one.rate, rate) for rate, one in zip(chosen, searches, strict=True)]
    best = " ".join(dict.fromkeys(map(name_of, pools)))
    yield row(f"{name}: place of the best pool among the bounds", places, note=best)
    yield row(f"{name}: chosen over best", shares, unit="%", note=name_of(space.chosen))
