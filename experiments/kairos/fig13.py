"""Kairos, Figure 13: the measured throughput of the twenty pools with the highest bounds."""

from __future__ import annotations

from pathlib import Path

from tuner.experiments import style
from tuner.experiments.kairos.cell import LABELS, Setting, Space, configuration, make_space, name_of
from tuner.experiments.kairos.pools import measured_pools
from tuner.experiments.options import Options
from tuner.experiments.result import Result, Row, Series, curve, row

__all__ = ["plot", "run"]

NAME = "kairos-fig13"
SHOWN = 20
WITHIN = 10
"""Published: the best pool is always among so many of the highest bounds."""
BOUND, MEASURED, CHOSEN = "bound", "kairos", "chosen"


def run(options: Options) -> Result:
    """Read the stored throughputs of the pools with the highest bounds."""
    rows: list[Row] = []
    series: list[Series] = []
    for model, label in LABELS.items():
        space, rates = make_space(Setting(model)), measured_pools(options.folder, model)["kairos"]
        pools = [tuple(pool) for pool in space.pools[space.order[:SHOWN]].tolist() if tuple(pool) in rates]
        place = pools.index(space.chosen)
        bounds = space.bound[space.order[: len(pools)]].tolist()
        places = range(1, len(pools) + 1)
        series += [
            curve(BOUND, places, [[bound] for bound in bounds], panel=label),
            curve(MEASURED, places, [[rates[pool]] for pool in pools], panel=label),
            curve(CHOSEN, [place + 1], [[rates[space.chosen]]], panel=label),
        ]
        rows += _rows(label, space, rates)
    return Result(experiment=NAME, seeds=1, configuration=configuration(0), rows=rows, series=series)


def _rows(label: str, space: Space, rates: dict[tuple[int, ...], float]) -> list[Row]:
    order = [tuple(pool) for pool in space.pools[space.order].tolist()]
    best = max(rates, key=lambda pool: rates[pool])
    share = rates[space.chosen] / rates[best]
    return [
        row(
            f"{label}: place of the best pool among the bounds",
            [float(order.index(best) + 1)],
            published=float(WITHIN),
            note=f"{name_of(best)}; published: at most",
        ),
        row(f"{label}: chosen over best", [100 * share], unit="%", note=name_of(space.chosen)),
    ]


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw bounds and measured throughputs, with a star at Kairos's choice."""
    figure, axes = style.figure(
        "The twenty highest bounds, and what these pools serve under Kairos", columns=5, size=(14, 3.2)
    )
    for axis, label in zip(axes.flat, LABELS.values(), strict=True):
        bound, measured, chosen = result.panel(label)
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
        axis.scatter(
            chosen.x,
            [y or 0.0 for y in chosen.y],
            marker="*",
            s=130,
            color=style.PALETTE[1],
            zorder=4,
            label="chosen",
        )
        axis.set(title=label, xlabel="rank of the bound", ylim=(0, None))
    axes.flat[0].set_ylabel("queries/s")
    style.legend(axes.flat[0], loc="lower left")
    return [style.save(figure, folder, NAME)]
