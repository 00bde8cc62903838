"""Kairos, Figure 15: its gain with four times the budget, and with a QoS target 20 % higher.

With the higher target a cheaper type may keep it at all sizes, too. The best homogeneous pool is then one of
that type, and another than in Figure 8; the gain over that of Figure 8 is told besides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, row
from tuner.experiments.kairos.cell import LABELS, QUERIES, QUICK_QUERIES, configuration, name_of
from tuner.experiments.kairos.gain import Gain, draw_panels, panels, same_rates
from tuner.experiments.kairos.search import optimum_rows
from tuner.report import style
from tuner.report.series import curve

__all__ = ["plot", "run"]

NAME = "kairos-fig15"
BEFORE, BUDGET, TARGET = "as in figure 8", "budget 10 $/h", "QoS target 20 % higher"
PANELS: dict[str, dict[str, Any]] = {BEFORE: {}, BUDGET: {"wealth": 4.0}, TARGET: {"stretch": 1.2}}
OLD = "over the type of figure 8"


def run(options: Options) -> Result:
    """Measure the gain of every model in the three settings."""
    queries = QUICK_QUERIES if options.quick else QUERIES
    found, rows, series = panels(PANELS, queries, options)
    for place, model in enumerate(LABELS):
        before, now = found[BEFORE][place], found[TARGET][place]
        if before.space.same != now.space.same:
            ratios = _over_old(now, before, options)
            note = f"{name_of(now.space.chosen)} against {name_of(before.space.same)}"
            rows.append(row(f"{LABELS[model]}, {TARGET}: gain {OLD}", ratios, unit="times", note=note))
            series.append(curve(OLD, [place], [ratios]))
    there = found[TARGET]
    names = [f"{label}, {TARGET}" for label in LABELS.values()]
    rows += optimum_rows([gain.space for gain in there], [gain.kairos for gain in there], names, options)
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration=configuration(queries),
        rows=rows,
        series=series,
    )


def _over_old(now: Gain, before: Gain, options: Options) -> list[float]:
    """Return the gain over a homogeneous pool of the type that was best before, per seed."""
    space = now.space._replace(same=before.space.same, scale=before.space.scale)
    return [one / other for one, other in zip(now.kairos, same_rates(space, options), strict=True)]


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw both panels, with the gain of Figure 8 as dots."""
    figure, axes = style.figure("Kairos over the best homogeneous pool at equal cost", columns=2, sharey=True)
    before, *others = (one for one in result.series if one.name in PANELS)
    draw_panels(axes, before, others)
    for one in result.series:
        if one.name == OLD:
            heights = [y or 0.0 for y in one.y]
            axes.flat[1].scatter(one.x, heights, marker="^", color=style.INK, zorder=5, label=OLD)
            style.legend(axes.flat[1], loc="upper left")
    return [style.save(figure, folder, NAME)]
