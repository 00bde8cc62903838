"""Kairos, Figure 13: the measured throughput of the twenty pools with the highest bounds."""

from __future__ import annotations

from pathlib import Path

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import (
    LABELS,
    QUERIES,
    QUICK_QUERIES,
    Cell,
    Pool,
    Setting,
    Space,
    configuration,
    make_space,
    measure,
    name_of,
)
from tuner.experiments.kairos.pools import measured_pools
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["plot", "run"]

NAME = "kairos-fig13"
SHOWN, QUICK_SHOWN = 20, 3
WITHIN = 10
"""Published: the best pool is always among so many of the highest bounds."""
BOUND, MEASURED, CHOSEN = "bound", "kairos", "chosen"


Rates = dict[Pool, list[float]]
"""Queries/s of each of the pools with the highest bounds, per seed."""


def run(options: Options) -> Result:
    """Measure the pools with the highest bounds; with the first seed all pools were measured before."""
    queries, shown = (QUICK_QUERIES, QUICK_SHOWN) if options.quick else (QUERIES, SHOWN)
    spaces = {model: make_space(Setting(model, queries=queries)) for model in LABELS}
    cells = [
        Cell(space.setting, pool, "kairos", seed)
        for space in spaces.values()
        for pool in _highest(space, shown)
        for seed in range(2, options.seeds + 1)
    ]
    found = dict(zip(cells, options.run_all(measure, cells, "pools and seeds"), strict=True))
    rows: list[Row] = []
    series: list[Series] = []
    for model, space in spaces.items():
        stored = measured_pools(options.folder, model)["kairos"]
        rates = {
            pool: [stored[pool]] + [rate for cell, rate in found.items() if _is_of(cell, space, pool)]
            for pool in _highest(space, shown)
        }
        label, places = LABELS[model], range(1, len(rates) + 1)
        bounds = space.bound[space.order[: len(rates)]].tolist()
        series += [
            curve(BOUND, places, [[bound] for bound in bounds], panel=label),
            curve(MEASURED, places, list(rates.values()), panel=label),
        ]
        if space.chosen in rates:
            place = list(rates).index(space.chosen) + 1
            series.append(curve(CHOSEN, [place], [rates[space.chosen]], panel=label))
        rows += _rows(label, space, rates, stored)
    return Result(
        experiment=NAME, seeds=options.seeds, configuration=configuration(queries), rows=rows, series=series
    )


def _highest(space: Space, shown: int) -> list[Pool]:
    return [tuple(pool) for pool in space.pools[space.order[:shown]].tolist()]


def _is_of(cell: Cell, space: Space, pool: Pool) -> bool:
    return cell.pool == pool and cell.setting == space.setting


def _rows(label: str, space: Space, rates: Rates, stored: dict[Pool, float]) -> list[Row]:
    """Where the best pool stands: with the first seed of all pools, with the others of the highest bounds."""
    order = [tuple(pool) for pool in space.pools[space.order].tolist()]
    seeds = range(len(next(iter(rates.values()))))
    best = [max(rates, key=lambda pool: rates[pool][seed]) for seed in seeds]
    best[0] = max(stored, key=lambda pool: stored[pool])
    names = " ".join(dict.fromkeys(map(name_of, best)))
    rows = [
        row(
            f"{label}: place of the best pool among the bounds",
            [float(order.index(pool) + 1) for pool in best],
            published=float(WITHIN),
            note=f"{names}; published: at most",
        )
    ]
    if space.chosen in rates:
        tops = [stored[best[0]], *(rates[pool][seed] for seed, pool in enumerate(best) if seed)]
        shares = [100 * rate / top for rate, top in zip(rates[space.chosen], tops, strict=True)]
        rows.append(row(f"{label}: chosen over best", shares, unit="%", note=name_of(space.chosen)))
    return rows


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw bounds and measured throughputs, with a star at Kairos's choice."""
    figure, axes = style.figure(
        "The twenty highest bounds, and what these pools serve under Kairos", columns=5, size=(14, 3.2)
    )
    for axis, label in zip(axes.flat, LABELS.values(), strict=True):
        bound, measured, *others = result.panel(label)
        axis.plot(bound.x, [y or 0.0 for y in bound.y], color=style.MUTED, marker=".", lw=1, label="bound")
        axis.plot(
            measured.x,
            [y or 0.0 for y in measured.y],
            color=style.look("kairos").color,
            marker="o",
            ms=4,
            lw=0.8,
            label="measured",
        )
        for chosen in others:
            heights = [y or 0.0 for y in chosen.y]
            axis.scatter(chosen.x, heights, marker="*", s=130, color=style.PALETTE[1], zorder=4, label=CHOSEN)
        axis.set(title=label, xlabel="rank of the bound", ylim=(0, None))
    axes.flat[0].set_ylabel("queries/s")
    style.legend(axes.flat[0], loc="lower left")
    return [style.save(figure, folder, NAME)]
