"""Kairos, Figure 14: the pools with the highest bounds for RM2 under other distribution policies."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import (
    QUERIES,
    QUICK_QUERIES,
    Cell,
    Pool,
    Setting,
    configuration,
    make_space,
    measure,
    name_of,
)
from tuner.experiments.kairos.pools import measured_pools
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["plot", "run"]

NAME = "kairos-fig14"
MODEL = "rm2"
SHOWN, QUICK_SHOWN = 10, 2
MEASURED = ("kairos", "ribbon", "drs", "clkwrk", "clkwrk, refusing")
ORACLE = "oracle, best pool"


def run(options: Options) -> Result:
    """Measure the pools under all policies; which pool is best for the oracle was measured before."""
    queries = QUICK_QUERIES if options.quick else QUERIES
    space = make_space(Setting(MODEL, queries=queries))
    stored = measured_pools(options.folder, MODEL)["oracle"]
    shown = QUICK_SHOWN if options.quick else SHOWN
    pools = [tuple(pool) for pool in space.pools[space.order[:shown]].tolist()]
    best = max(stored, key=lambda pool: stored[pool])
    pairs = [*((pool, policy) for policy in MEASURED for pool in pools), (best, "oracle")]
    seeds = range(1, options.seeds + 1)
    cells = [Cell(space.setting, pool, policy, seed) for pool, policy in pairs for seed in seeds]
    found = dict(zip(cells, options.run_all(measure, cells, "pools and policies"), strict=True))

    def rates(pool: Pool, policy: str) -> list[float]:
        return [found[Cell(space.setting, pool, policy, seed)] for seed in seeds]

    bounds = space.bound[space.order[:shown]].tolist()
    places = range(1, shown + 1)
    series: list[Series] = [curve("bound", places, [[bound] for bound in bounds])]
    series += [curve(policy, places, [rates(pool, policy) for pool in pools]) for policy in MEASURED]
    series.append(curve(ORACLE, [1, shown], [rates(best, "oracle")] * 2))
    rows: list[Row] = [row(ORACLE, rates(best, "oracle"), unit="queries/s", note=name_of(best))]
    for bound, pool in zip(bounds, pools, strict=True):
        rows.append(row(f"{name_of(pool)}, bound", [bound], unit="queries/s"))
        for policy in MEASURED:
            values = rates(pool, policy)
            note = f"{100 * median(values) / bound:.0f} % of the bound"
            rows.append(row(f"{name_of(pool)}, {policy}", values, unit="queries/s", note=note))
    return Result(
        experiment=NAME, seeds=options.seeds, configuration=configuration(queries), rows=rows, series=series
    )


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the throughput of each pool under each policy."""
    figure, axes = style.figure("RM2: the ten highest bounds under other distribution policies", size=(7, 4))
    (axis,) = axes.flat
    *curves, oracle = result.series
    style.curves(axis, curves)
    axis.plot(oracle.x, [y or 0.0 for y in oracle.y], color=style.INK, ls="--", lw=1, label=oracle.name)
    axis.set(xlabel="rank of the bound", ylabel="allowable throughput, queries/s", ylim=(0, 185))
    style.legend(axis, ncols=4, loc="upper center", fontsize=7)
    return [style.save(figure, folder, NAME)]
