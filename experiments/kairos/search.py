"""Kairos+ (algorithm 1) on simulated pools: the best of all pools of a setting, under a policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Row, row
from tuner.experiments.kairos.cell import Cell, Pool, Setting, Space, make_space, measure, name_of
from tuner.planning.pools.search import Found, kairos_plus

__all__ = ["QUICK_LIMIT", "Search", "optimum_rows", "search", "until_best"]

QUICK_LIMIT = 6
"""Evaluations of a quick look."""


class Search(NamedTuple):
    """One search."""

    setting: Setting
    policy: str = "kairos"
    seed: int = 1
    limit: int | None = None
    known: tuple[tuple[Pool, float], ...] = ()
    """Throughputs that were measured before, by pool."""


def search(task: Search) -> Found:
    """Search the best pool under a policy."""
    space, known = make_space(task.setting), dict(task.known)
    best = 0.0  # what serves less is neither the best nor prunes anything by its throughput

    def evaluate(pool: Pool) -> float:
        nonlocal best
        cell = Cell(task.setting, pool, task.policy, task.seed)
        rate = known[pool] if pool in known else measure(cell, at_least=best)
        best = max(best, rate)
        return rate

    return kairos_plus(space.pools, space.bound, space.order, evaluate, task.limit)


def until_best(found: Found) -> int:
    """Return how many pools were tried when the best had been."""
    return next(
        (n for n, one in enumerate(found.evaluations, 1) if one.pool == found.pool), len(found.evaluations)
    )


def optimum_rows(
    spaces: Sequence[Space], chosen: Sequence[Sequence[float]], names: Sequence[str], options: Options
) -> list[Row]:
    """Say which pool is the best in each setting, where it stands among the bounds, and how near Kairos is.

    Args:
        spaces: The settings.
        chosen: What Kairos's choice serves in each, per seed, queries/s.
        names: Of the settings.
        options: How many seeds, and how long it may take.
    """
    limit = QUICK_LIMIT if options.quick else None
    seeds = range(1, options.seeds + 1)
    tasks = [Search(space.setting, seed=seed, limit=limit) for space in spaces for seed in seeds]
    found = dict(zip(tasks, options.run_all(search, tasks, "searches"), strict=True))
    rows = []
    for space, rates, name in zip(spaces, chosen, names, strict=True):
        searches = [found[Search(space.setting, seed=seed, limit=limit)] for seed in seeds]
        order = [tuple(pool) for pool in space.pools[space.order].tolist()]
        pools = [one.pool or space.chosen for one in searches]
        best = " ".join(dict.fromkeys(map(name_of, pools)))
        places = [float(order.index(pool) + 1) for pool in pools]
        shares = [100 * rate / max(one.rate, rate) for rate, one in zip(rates, searches, strict=True)]
        rows += [
            row(f"{name}: place of the best pool among the bounds", places, note=best),
            row(f"{name}: chosen over best", shares, unit="%", note=name_of(space.chosen)),
        ]
    return rows
