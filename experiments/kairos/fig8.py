"""Kairos, Figure 8: its throughput over that of the best homogeneous pool, at equal cost."""

from __future__ import annotations

from pathlib import Path

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row
from tuner.experiments.kairos.cell import LABELS, QUERIES, QUICK_QUERIES, Setting, configuration
from tuner.experiments.kairos.gain import Gain, gains, rows_of
from tuner.report import style
from tuner.report.series import curve

__all__ = ["plot", "run"]

NAME = "kairos-fig8"
PUBLISHED = dict.fromkeys(LABELS, 1.25) | {"rm2": 2.0}
"""Section 8.1: more than 1.25 in all cases, up to 2 (RM2); the figure's other bars have no numbers."""


def run(options: Options) -> Result:
    """Measure the chosen and the homogeneous pool of every model."""
    queries = QUICK_QUERIES if options.quick else QUERIES
    found = gains([Setting(model, queries=queries) for model in LABELS], options)
    rows = [row for gain in found for row in _rows(gain)]
    series = [curve("kairos", range(len(found)), [gain.ratios for gain in found])]
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration=configuration(queries),
        rows=rows,
        series=series,
    )


def _rows(gain: Gain) -> list[Row]:
    return rows_of(gain, LABELS[gain.space.setting.model], PUBLISHED[gain.space.setting.model])


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the gain of each model."""
    figure, axes = style.figure("Kairos over the best homogeneous pool", size=(5.5, 3.6))
    (axis,) = axes.flat
    (series,) = result.series
    heights = [height or 0.0 for height in series.y]
    axis.bar(series.x, heights, 0.6, color=style.look("kairos").color, label="kairos")
    for place, height in zip(series.x, heights, strict=True):
        axis.annotate(f"{height:.2f}", (place, height), (0, 3), textcoords="offset points", ha="center")
    style.published(axis, series.x, list(PUBLISHED.values()), "published: at least (RM2: up to)")
    axis.axhline(1, color=style.MUTED, lw=1, ls="--")
    axis.set_xticks(series.x, list(LABELS.values()))
    axis.set(ylabel="allowable throughput at equal cost, times", ylim=(0, max(heights) * 1.3))
    style.legend(axis, loc="upper left")
    return [style.save(figure, folder, NAME)]
