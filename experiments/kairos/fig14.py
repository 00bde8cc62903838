"""Kairos, Figure 14: the pools with the highest bounds for RM2 under other distribution policies."""

from __future__ import annotations

from pathlib import Path

from tuner.experiments import style
from tuner.experiments.kairos.cell import (
    QUERIES,
    QUICK_QUERIES,
    Cell,
    Setting,
    configuration,
    make_space,
    measure,
    name_of,
)
from tuner.experiments.kairos.pools import measured_pools
from tuner.experiments.options import Options
from tuner.experiments.parallel import run_all
from tuner.experiments.result import Result, Row, Series, curve, row

__all__ = ["plot", "run"]

NAME = "kairos-fig14"
MODEL = "rm2"
SHOWN, QUICK_SHOWN = 10, 2
RIVALS = ("ribbon", "drs", "clkwrk", "clkwrk, refusing")


def run(options: Options) -> Result:
    """Measure the pools under the rivals; Kairos and the oracle were measured before."""
    queries = QUICK_QUERIES if options.quick else QUERIES
    space, stored = make_space(Setting(MODEL, queries=queries)), measured_pools(options.folder, MODEL)
    shown = QUICK_SHOWN if options.quick else SHOWN
    pools = [tuple(pool) for pool in space.pools[space.order[:shown]].tolist()]
    cells = [Cell(space.setting, pool, policy) for policy in RIVALS for pool in pools]
    found = dict(zip(cells, run_all(measure, cells, options, "pools and policies"), strict=True))
    bounds = space.bound[space.order[:shown]].tolist()
    heights = {
        "bound": bounds,
        "kairos": [stored["kairos"][pool] for pool in pools],
        **{policy: [found[Cell(space.setting, pool, policy)] for pool in pools] for policy in RIVALS},
    }
    oracle = max(stored["oracle"].values())
    series: list[Series] = [
        curve(name, range(1, shown + 1), [[value] for value in values]) for name, values in heights.items()
    ]
    series.append(curve("oracle, best pool", [1, shown], [[oracle], [oracle]]))
    rows: list[Row] = [row("oracle, best pool", [oracle], unit="queries/s")]
    for place, pool in enumerate(pools):
        for name, values in heights.items():
            note = f"{100 * values[place] / bounds[place]:.0f} % of the bound" if name != "bound" else ""
            rows.append(row(f"{name_of(pool)}, {name}", [values[place]], unit="queries/s", note=note))
    return Result(experiment=NAME, seeds=1, configuration=configuration(queries), rows=rows, series=series)


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
