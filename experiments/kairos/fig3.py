"""Kairos, Figure 3: what a pool serves depends on the distribution policy (RM2)."""

from __future__ import annotations

from pathlib import Path

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import (
    POLICIES,
    QUERIES,
    QUICK_QUERIES,
    Cell,
    Setting,
    configuration,
    measure,
)
from tuner.experiments.kairos.fig1 import POOLS, name_of_three
from tuner.report import style
from tuner.report.series import curve

__all__ = ["plot", "run"]

NAME = "kairos-fig3"
MIXED = POOLS[1:]


def run(options: Options) -> Result:
    """Measure the mixed pools of Figure 1 under every policy."""
    queries = QUICK_QUERIES if options.quick else QUERIES
    seeds = range(1, options.seeds + 1)
    setting = Setting("rm2", queries=queries)
    cells = [Cell(setting, pool, policy, seed) for policy in POLICIES for pool in MIXED for seed in seeds]
    found = dict(zip(cells, options.run_all(measure, cells, "pools, policies and seeds"), strict=True))
    rows: list[Row] = []
    series = []
    for policy in POLICIES:
        values = [[found[Cell(setting, pool, policy, seed)] for seed in seeds] for pool in MIXED]
        series.append(curve(policy, range(len(MIXED)), values))
        rows += [
            row(f"{name_of_three(pool)}, {policy}", rates, unit="queries/s")
            for pool, rates in zip(MIXED, values, strict=True)
        ]
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration=configuration(queries),
        rows=rows,
        series=series,
    )


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the policies side by side for each pool."""
    figure, axes = style.figure("RM2: three pools under every distribution policy", size=(7.5, 3.6))
    (axis,) = axes.flat
    style.bars(axis, [name_of_three(pool) for pool in MIXED], [(one.name, one.y) for one in result.series])
    axis.set(
        xlabel="instances of (g4dn.xlarge, c5n.2xlarge, r5n.large)", ylabel="allowable throughput, queries/s"
    )
    axis.set_ylim(top=160)
    style.legend(axis, ncols=4, loc="upper center")
    return [style.save(figure, folder, NAME)]
