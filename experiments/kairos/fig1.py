"""Kairos, Figure 1: mixed pools against the homogeneous one for RM2, first come, first served (Ribbon)."""

from __future__ import annotations

from pathlib import Path

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import QUERIES, QUICK_QUERIES, Cell, Pool, Setting, configuration, measure
from tuner.planning.pools.paper import BUDGET, paper_catalogue
from tuner.report import style
from tuner.report.series import curve

__all__ = ["POOLS", "cost_of", "name_of_three", "plot", "run"]

NAME = "kairos-fig1"
POOLS: tuple[Pool, ...] = ((4, 0, 0, 0), (3, 1, 3, 0), (2, 0, 9, 0), (1, 4, 2, 0))
"""G1, C1 and C2 of the paper are g4dn.xlarge, c5n.2xlarge and r5n.large."""
PUBLISHED: dict[Pool, float] = {(3, 1, 3, 0): 1.15}
"""Times the homogeneous pool (section 4); the other two are below 1 in the figure."""
ARRIVALS = {"poisson": "exponential gaps", "integer_poisson": "gaps of whole ms"}


def run(options: Options) -> Result:
    """Measure the four pools with both kinds of gaps."""
    queries = QUICK_QUERIES if options.quick else QUERIES
    seeds = range(1, options.seeds + 1)
    cells = {
        (arrival, pool, seed): Cell(Setting("rm2", arrival=arrival, queries=queries), pool, "ribbon", seed)
        for arrival in ARRIVALS
        for pool in POOLS
        for seed in seeds
    }
    rates = options.run_all(measure, list(cells.values()), "pools and seeds")
    found = dict(zip(cells, rates, strict=True))
    rows: list[Row] = []
    series = []
    for arrival, words in ARRIVALS.items():
        scale = BUDGET / cost_of(POOLS[0])
        same = [found[arrival, POOLS[0], seed] * scale for seed in seeds]
        values = [same, *([found[arrival, pool, seed] for seed in seeds] for pool in POOLS[1:])]
        series.append(curve(words, range(len(POOLS)), values))
        for pool, rates in zip(POOLS, values, strict=True):
            name = f"{name_of_three(pool)}, {words}"
            note = "scaled up to 2.5 $/h" if pool == POOLS[0] else ""
            rows.append(row(f"{name}: throughput", rates, unit="queries/s", note=note))
            if pool != POOLS[0]:
                ratios = [one / other for one, other in zip(rates, same, strict=True)]
                rows.append(
                    row(f"{name}: over homogeneous", ratios, unit="times", published=PUBLISHED.get(pool))
                )
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration=configuration(queries) | {"policy": "ribbon", "arrivals": list(ARRIVALS.values())},
        rows=rows,
        series=series,
    )


def cost_of(pool: Pool) -> float:
    """Return what a pool costs, $/h."""
    return sum(kind.price * count for kind, count in zip(paper_catalogue(), pool, strict=True))


def name_of_three(pool: Pool) -> str:
    """Write a pool by its first three types, as the paper does here."""
    return f"({', '.join(str(count) for count in pool[:3])})"


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw throughput and cost of the four pools."""
    figure, axes = style.figure("RM2, first come, first served", columns=2)
    left, right = axes.flat
    names = [name_of_three(pool) for pool in POOLS]
    style.bars(left, names, [(one.name, one.y) for one in result.series])
    left.axhline((result.series[0].y[0] or 0.0), color=style.MUTED, lw=1, ls="--")
    left.set(
        title="instances of (g4dn.xlarge, c5n.2xlarge, r5n.large)", ylabel="allowable throughput, queries/s"
    )
    style.legend(left)
    costs = [BUDGET, *(cost_of(pool) for pool in POOLS[1:])]
    right.bar(names, costs, 0.6, color=style.MUTED)
    right.axhline(BUDGET, color=style.INK, lw=1, ls="--")
    right.set(title="cost; the first scaled up to the budget", ylabel="$/h", ylim=(0, 3))
    return [style.save(figure, folder, NAME)]
