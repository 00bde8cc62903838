"""Kairos: one matching, the bounds of many pools, and queries simulated per second with a matching at each.

Matchings are called from Python one by one, so that their median can be taken; scipy solves the same ones.
Costs are either random, or those of RM2's queries on g4dn.xlarge and r5n.large instances of which half are
busy, which is harder: many costs are nearly products, and late pairs all cost the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import numpy as np
from scipy.optimize import linear_sum_assignment

from tuner.cluster import Scenario, simulate
from tuner.experiments.benchmarks.report import BenchOptions, BenchRow, compared, seconds_of
from tuner.experiments.kairos.cell import PoolSetting, make_space
from tuner.planning.pools.bound import bounds
from tuner.planning.pools.paper import SLOS
from tuner.scheduling.distribution.matching import make_matching, match

__all__ = ["run"]

SIZES = (20, 200)
MATRICES = 200
WIDE = ((175, 200), (400, 200))
"""Queries and instances where these are not as many: harder, and so slow in scipy that fewer are solved."""
WIDE_MATRICES = 20
POOLS = (1_000, 1_000_000)
QUERIES = 400_000
QUICK = 20
POOL = {"g4dn.xlarge": 1, "r5n.large": 12}
"""13 instances, as in the issue; their allowable throughput for RM2 is about 116 queries/s."""
LOADS = {"half load": 58.0, "near the limit": 105.0}
GUARD, PENALTY = 0.98, 10.0


def run(options: BenchOptions) -> list[BenchRow]:
    """Measure everything; ``options.repeats`` is how often."""
    cut = QUICK if options.quick else 1
    parts: list[Callable[[], Iterator[BenchRow]]] = [
        lambda: _matchings(MATRICES // cut),
        lambda: _bounds(cut, options.repeats),
        lambda: _simulation(QUERIES // cut, options.repeats),
    ]
    rows: list[BenchRow] = []
    for part in options.track(parts, "measurements"):
        rows += part()
    return rows


def _matchings(count: int) -> Iterator[BenchRow]:
    for size in SIZES:
        for words, draw in (("random costs", _random), ("queries on instances", _queries)):
            matrices = [draw(size, size, seed) for seed in range(count)]
            yield _matching(f"matching {size} x {size}, {words}", matrices)
    for queries, instances in WIDE:
        matrices = [_queries(queries, instances, seed) for seed in range(min(WIDE_MATRICES, count))]
        yield _matching(f"matching {queries} x {instances}, queries on instances", matrices)


def _matching(name: str, matrices: list[np.ndarray]) -> BenchRow:
    ours, theirs = _matching_times(matrices)
    return compared(
        name, ours * 1e6, theirs * 1e6, "us", less=True, note="median; baseline: scipy's, same costs"
    )


def _matching_times(matrices: list[np.ndarray]) -> tuple[float, float]:
    """Return the median time of ours and of scipy's, s; checks that they cost the same."""
    rows, columns = matrices[0].shape
    work = make_matching(rows, columns)
    match(work, rows, columns)  # compiles
    ours, theirs = [], []
    for cost in matrices:
        work.cost[...] = cost
        begin = time.perf_counter()
        match(work, rows, columns)
        ours.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        chosen = linear_sum_assignment(cost)
        theirs.append(time.perf_counter() - begin)
        found, least = cost[np.arange(rows), work.mate].sum(), cost[chosen].sum()
        assert abs(found - least) <= 1e-9 * max(least, 1.0), (found, least)
    return median(ours), median(theirs)


def _random(rows: int, columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((rows, columns))


def _queries(queries: int, instances: int, seed: int) -> np.ndarray:
    """Costs as Kairos has them (eq. 2 and 8): queries that have waited, and instances, half of them busy.

    Instances are the rows where there are more queries.
    """
    generator = np.random.default_rng(seed)
    space, qos = make_space(PoolSetting("rm2")), SLOS["rm2"]
    kinds = np.where(np.arange(instances) < max(instances // 14, 1), 0, 2)  # g4dn.xlarge, r5n.large
    weight = space.offers.latency[0, -1] / space.offers.latency[:, -1]
    items = generator.choice(space.offers.latency.shape[1], queries, p=_paper_sizes())
    waited = generator.random(queries) * qos / 2
    left = np.where(generator.random(instances) < 0.5, generator.random(instances) * qos / 2, 0.0)
    length = left + space.offers.latency[kinds][:, items].T
    length = np.where(length + waited[:, None] > GUARD * qos, PENALTY * qos, length)
    cost = weight[kinds] * length  # (queries, instances)
    return np.ascontiguousarray(cost.T if queries > instances else cost)


def _paper_sizes() -> np.ndarray:
    from tuner.workload.sizes import paper_sizes

    return paper_sizes().probability


def _bounds(cut: int, repeats: int) -> Iterator[BenchRow]:
    space = make_space(PoolSetting("rm2"))
    generator = np.random.default_rng(0)
    for count in POOLS:
        number = max(count // cut, 10)
        pools = generator.integers(0, 40, (number, 4)).astype(np.int32)
        took = seconds_of(partial(bounds, pools, space.terms), repeats)
        yield compared(f"bounds of {number:,} pools", took * 1e3, None, "ms")


def _simulation(queries: int, repeats: int) -> Iterator[BenchRow]:
    for words, rate in LOADS.items():
        speeds = {}
        for policy in ("kairos", "ribbon"):
            cluster = _cluster(policy, rate, queries)
            assert cluster.interval.last > 0  # draws the arrivals once, which is not part of it
            speeds[policy] = queries / seconds_of(partial(simulate, cluster), repeats)
        yield compared(
            f"simulation, 13 instances, {words}",
            speeds["kairos"],
            speeds["ribbon"],
            "queries/s",
            note=f"{rate:g} queries/s of RM2; baseline: ribbon, which matches nothing",
        )


def _cluster(policy: str, rate: float, queries: int) -> Scenario:
    return Scenario.model_validate(
        {
            "policy": policy,
            "instances": [{"type": name, "count": count} for name, count in POOL.items()],
            "sessions": [
                {"name": "rm2", "model": "rm2", "slo_ms": SLOS["rm2"] * 1e3, "sizes": "paper", "rate": rate}
            ],
            "requests": queries,
            "seed": 1,
        }
    )
