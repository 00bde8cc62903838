"""Kairos, Figure 8: its goodput over that of the best homogeneous pool, at equal cost."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.experiments.frame.experiment import Answers, experiment
from tuner.experiments.frame.result import Result, Row
from tuner.experiments.kairos.cell import LABELS, Cell, CellExperiment, homogeneous
from tuner.experiments.kairos.gain import gain_of, gain_rows, pool_of_kairos
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["GainAtEqualCost"]

PUBLISHED = dict.fromkeys(LABELS, 1.25) | {"rm2": 2.0}
"""Section 8.1: more than 1.25 in all cases, up to 2 (RM2); the figure's other bars have no numbers."""


@experiment(
    name="kairos-fig8",
    title="Goodput over that of the best homogeneous pool at equal cost",
    paper="Kairos",
    minutes=1,
)
class GainAtEqualCost(CellExperiment):
    """The chosen and the homogeneous pool of every model."""

    def tasks(self) -> list[Cell]:
        spaces = self.spaces().values()
        return [cell for space in spaces for cell in (pool_of_kairos(space), homogeneous(space))]

    def rows(self, found: Answers[Cell, float]) -> Iterator[Row]:
        for model, space in self.spaces().items():
            yield from gain_rows(gain_of(space, found), LABELS[model], PUBLISHED[model])

    def series(self, found: Answers[Cell, float]) -> list[Series]:
        ratios = [gain_of(space, found).ratios for space in self.spaces().values()]
        return [curve("kairos", range(len(ratios)), ratios)]

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
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
        axis.set(ylabel="goodput at equal cost, times", ylim=(0, max(heights) * 1.3))
        style.legend(axis, loc="upper left")
        return [style.Drawing(figure)]
