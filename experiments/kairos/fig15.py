"""Kairos, Figure 15: its gain with four times the budget, and with an SLO 20 % higher.

With the higher target a cheaper type may keep it at all sizes, too. The best homogeneous pool is then one of
that type, and another than in Figure 8; there is also a row with the gain over that of Figure 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from tuner.experiments.frame.experiment import Answers, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import LABELS, Cell, PoolSpace, homogeneous, make_space, name_of
from tuner.experiments.kairos.gain import GainExperiment, draw_panels, gain_of
from tuner.experiments.kairos.search import PoolSearch
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["GainByBudget"]

BEFORE, BUDGET, TARGET = "as in figure 8", "budget 10 $/h", "QoS target 20 % higher"
OLD = "over the type of figure 8"


@experiment(
    name="kairos-fig15",
    title="The gain with four times the budget, and with an SLO 20 % higher",
    paper="Kairos",
    minutes=4,
)
class GainByBudget(GainExperiment):
    """The gain of every model in the three settings, and the best pools with the higher target."""

    panels: ClassVar = {BEFORE: {}, BUDGET: {"wealth": 4.0}, TARGET: {"stretch": 1.2}}
    searched = TARGET

    def tasks(self) -> list[Cell | PoolSearch]:
        return [*super().tasks(), *map(homogeneous, self._old_types().values())]

    def rows(self, found: Answers[Cell | PoolSearch, Any]) -> Iterator[Row]:
        yield from self.panel_rows(found)
        for model, space in self._old_types().items():
            note = f"{name_of(space.chosen)} against {name_of(space.same)}"
            ratios = gain_of(space, found).ratios
            yield row(f"{LABELS[model]}, {TARGET}: gain {OLD}", ratios, unit="times", note=note)
        yield from self.best_rows(found)

    def series(self, found: Answers[Cell | PoolSearch, Any]) -> Iterator[Series]:
        yield from super().series(found)
        for model, space in self._old_types().items():
            yield curve(OLD, [list(LABELS).index(model)], [gain_of(space, found).ratios])

    def _old_types(self) -> dict[str, PoolSpace]:
        """The models whose homogeneous pool has another type than before, with a pool of the old type."""
        spaces = {}
        for old, new in zip(self.settings(BEFORE), self.settings(TARGET), strict=True):
            before, now = make_space(old), make_space(new)
            if before.same != now.same:
                spaces[old.model] = now._replace(same=before.same, scale=before.scale)
        return spaces

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw both panels, with the gain of Figure 8 as dots."""
        figure, axes = style.figure(
            "Kairos over the best homogeneous pool at equal cost", columns=2, sharey=True
        )
        before, *others = (one for one in result.series if one.name in GainByBudget.panels)
        draw_panels(axes, before, others)
        for one in result.series:
            if one.name == OLD:
                heights = [y or 0.0 for y in one.y]
                axes.flat[1].scatter(one.x, heights, marker="^", color=style.INK, zorder=5, label=OLD)
                style.legend(axes.flat[1], loc="upper left")
        return [style.Drawing(figure)]
