"""Kairos, Figure 15: its gain with four times the budget, and with a QoS target 20 % higher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner.experiments import style
from tuner.experiments.kairos.cell import LABELS, QUERIES, QUICK_QUERIES, Setting, configuration
from tuner.experiments.kairos.gain import gains, rows_of
from tuner.experiments.options import Options
from tuner.experiments.result import Result, curve

__all__ = ["plot", "run"]

NAME = "kairos-fig15"
PANELS: dict[str, dict[str, Any]] = {
    "as in figure 8": {},
    "budget 10 $/h": {"wealth": 4.0},
    "QoS target 20 % higher": {"stretch": 1.2},
}


def run(options: Options) -> Result:
    """Measure the gain of every model in the three settings."""
    queries = QUICK_QUERIES if options.quick else QUERIES
    settings = [Setting(model, queries=queries, **changes) for changes in PANELS.values() for model in LABELS]
    found = dict(zip(settings, gains(settings, options), strict=True))
    rows, series = [], []
    for panel, changes in PANELS.items():
        here = [found[Setting(model, queries=queries, **changes)] for model in LABELS]
        series.append(curve(panel, range(len(here)), [gain.ratios for gain in here]))
        for gain in here:
            rows += rows_of(gain, f"{LABELS[gain.space.setting.model]}, {panel}", None)
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration=configuration(queries),
        rows=rows,
        series=series,
    )


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw both panels, with the gain of Figure 8 as dots."""
    figure, axes = style.figure("Kairos over the best homogeneous pool at equal cost", columns=2, sharey=True)
    before, *panels = result.series
    for axis, series in zip(axes.flat, panels, strict=True):
        axis.bar(series.x, [y or 0.0 for y in series.y], 0.6, color=style.look("kairos").color)
        axis.scatter(
            before.x, [y or 0.0 for y in before.y], color=style.PALETTE[1], zorder=4, label=before.name
        )
        axis.axhline(1, color=style.MUTED, lw=1, ls="--")
        axis.set_xticks(series.x, list(LABELS.values()), fontsize=8)
        axis.set(title=series.name)
    axes.flat[0].set_ylabel("allowable throughput, times")
    style.legend(axes.flat[0], loc="upper left")
    return [style.save(figure, folder, NAME)]
