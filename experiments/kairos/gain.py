"""Kairos over the best homogeneous pool at equal cost, in any setting: figures 8, 15 and 16."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Row, row
from tuner.experiments.kairos.cell import (
    LABELS,
    Cell,
    Setting,
    Space,
    homogeneous,
    make_space,
    measure,
    name_of,
)
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["Gain", "draw_panels", "gains", "panels", "rows_of", "same_rates"]


class Gain(NamedTuple):
    """What was measured in one setting, per seed."""

    space: Space
    kairos: list[float]
    """Queries/s of the pool that Kairos chose."""
    same: list[float]
    """Queries/s of the best homogeneous pool, scaled up to the whole budget."""

    @property
    def ratios(self) -> list[float]:
        """Kairos's throughput over the other, per seed."""
        return [one / other for one, other in zip(self.kairos, self.same, strict=True)]


def gains(settings: Sequence[Setting], options: Options) -> list[Gain]:
    """Measure both pools in each setting, with every seed; the homogeneous one without any noise."""
    spaces = [make_space(setting) for setting in settings]
    seeds = range(1, options.seeds + 1)
    pairs = [
        (Cell(space.setting, space.chosen, "kairos", seed), _same(space, seed))
        for space in spaces
        for seed in seeds
    ]
    cells = list(dict.fromkeys(cell for pair in pairs for cell in pair))
    found = dict(zip(cells, options.run_all(measure, cells, "pools and seeds"), strict=True))
    return [
        Gain(
            space,
            [found[Cell(space.setting, space.chosen, "kairos", seed)] for seed in seeds],
            [found[_same(space, seed)] * space.scale for seed in seeds],
        )
        for space in spaces
    ]


def panels(
    changes: Mapping[str, Mapping[str, Any]], queries: int, options: Options
) -> tuple[dict[str, list[Gain]], list[Row], list[Series]]:
    """Measure the gain of every model in several variants of its setting.

    Args:
        changes: What is otherwise, by the name of a panel.
        queries: In each simulation.
        options: Seeds and processes.

    Returns:
        The gains of each panel in the order of the models, their rows, and a curve for each panel.
    """
    settings = [Setting(model, queries=queries, **more) for more in changes.values() for model in LABELS]
    measured = iter(gains(settings, options))
    found = {panel: [next(measured) for _ in LABELS] for panel in changes}
    rows = [
        one
        for panel, here in found.items()
        for gain in here
        for one in rows_of(gain, f"{LABELS[gain.space.setting.model]}, {panel}", None)
    ]
    series = [curve(panel, range(len(here)), [gain.ratios for gain in here]) for panel, here in found.items()]
    return found, rows, series


def draw_panels(axes: np.ndarray, before: Series, series: Sequence[Series]) -> None:
    """Draw the gain of every model in each panel as bars, with that of Figure 8 as dots."""
    for axis, one in zip(axes.flat, series, strict=True):
        axis.bar(one.x, [y or 0.0 for y in one.y], 0.6, color=style.look("kairos").color)
        axis.scatter(
            before.x, [y or 0.0 for y in before.y], color=style.PALETTE[1], zorder=4, label=before.name
        )
        axis.axhline(1, color=style.MUTED, lw=1, ls="--")
        axis.set_xticks(one.x, list(LABELS.values()), fontsize=8)
        axis.set(title=one.name)
    axes.flat[0].set_ylabel("allowable throughput, times")
    style.legend(axes.flat[0], loc="upper left")


def same_rates(space: Space, options: Options) -> list[float]:
    """Return what the homogeneous pool of a space serves, scaled up to the whole budget, per seed."""
    cells = [_same(space, seed) for seed in range(1, options.seeds + 1)]
    return [rate * space.scale for rate in options.run_all(measure, cells, "seeds")]


def rows_of(gain: Gain, name: str, published: float | None, note: str = "") -> list[Row]:
    """Return the gain, and the two throughputs that it is made of."""
    space = gain.space
    pools = f"{name_of(space.chosen)} against {name_of(space.same)}"
    return [
        row(f"{name}: gain", gain.ratios, unit="times", published=published, note=f"{pools}{note}"),
        row(f"{name}: kairos", gain.kairos, unit="queries/s"),
        row(f"{name}: homogeneous, scaled", gain.same, unit="queries/s"),
    ]


def _same(space: Space, seed: int) -> Cell:
    cell = homogeneous(space, seed)
    return cell._replace(setting=cell.setting._replace(noise=0.0))
