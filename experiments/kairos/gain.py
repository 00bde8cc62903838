"""Kairos over the best homogeneous pool at equal cost, in any setting: Figures 8, 15 and 16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tuner.experiments.frame.experiment import Answers, Scaled
from tuner.experiments.frame.result import Row, row
from tuner.experiments.kairos.cell import (
    LABELS,
    UNIT,
    Cell,
    PoolExperiment,
    PoolSetting,
    PoolSpace,
    homogeneous,
    make_space,
    name_of,
)
from tuner.experiments.kairos.search import QUICK_LIMIT, PoolSearch, optimum_rows, search_pools
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["Gain", "GainExperiment", "draw_panels", "gain_of", "gain_rows", "pool_of_kairos"]


class Gain(NamedTuple):
    """What was measured in one setting, per seed."""

    space: PoolSpace
    kairos: list[float]
    """Requests/s of the pool that Kairos chose."""
    same: list[float]
    """Requests/s of the best homogeneous pool, scaled up to the whole budget."""

    @property
    def ratios(self) -> list[float]:
        """Kairos's goodput over the other, per seed."""
        return [one / other for one, other in zip(self.kairos, self.same, strict=True)]


class GainExperiment(PoolExperiment[Cell | PoolSearch, Any]):
    """An experiment that measures the gain of every model in several panels, each another setting."""

    panels: ClassVar[Mapping[str, Mapping[str, Any]]]
    """By the name of a panel, how its setting differs from the paper's."""
    searched: ClassVar[str]
    """The panel whose best pools are searched for."""
    limit = Scaled[int | None](None, quick=QUICK_LIMIT)
    """Pools that a search tries."""

    def settings(self, panel: str) -> list[PoolSetting]:
        """Return the setting of each model in a panel."""
        return [self.setting(model, **self.panels[panel]) for model in LABELS]

    def tasks(self) -> list[Cell | PoolSearch]:
        """Return the pools that gains are made of, the homogeneous ones without noise, and the searches."""
        spaces = [make_space(setting) for panel in self.panels for setting in self.settings(panel)]
        cells = [cell for space in spaces for cell in (pool_of_kairos(space), homogeneous(space))]
        return [*cells, *(self._search(setting) for setting in self.settings(self.searched))]

    def measure(self, task: Cell | PoolSearch, seed: int) -> Any:
        """Return the goodput of a cell, requests/s, or what a search found."""
        if isinstance(task, PoolSearch):
            return search_pools(task, seed, self.rate)
        return self.rate(task, seed)

    def gains(self, found: Answers[Any, Any]) -> dict[str, list[Gain]]:
        """Return the gains of each panel, in the order of the models."""
        return {
            panel: [gain_of(make_space(setting), found) for setting in self.settings(panel)]
            for panel in self.panels
        }

    def panel_rows(self, found: Answers[Any, Any]) -> Iterator[Row]:
        """Return the gains in rows."""
        for panel, gains in self.gains(found).items():
            for gain in gains:
                yield from gain_rows(gain, f"{LABELS[gain.space.setting.model]}, {panel}", None)

    def best_rows(self, found: Answers[Any, Any]) -> Iterator[Row]:
        """Say in rows which pools are the best in the panel that is searched, and how near Kairos comes."""
        for gain in self.gains(found)[self.searched]:
            setting = gain.space.setting
            name = f"{LABELS[setting.model]}, {self.searched}"
            yield from optimum_rows(name, gain.space, gain.kairos, found[self._search(setting)])

    def _search(self, setting: PoolSetting) -> PoolSearch:
        return PoolSearch(setting, limit=self.limit)

    def series(self, found: Answers[Any, Any]) -> Iterator[Series]:
        """Return a curve over the models for each panel."""
        for panel, gains in self.gains(found).items():
            yield curve(panel, range(len(gains)), [gain.ratios for gain in gains])


def pool_of_kairos(space: PoolSpace) -> Cell:
    """Return the pool that Kairos chooses, under its policy."""
    return Cell(space.setting, space.chosen, "kairos")


def gain_of(space: PoolSpace, found: Answers[Any, Any]) -> Gain:
    """Return the gain in one setting, of goodputs by cell."""
    same = [rate * space.scale for rate in found[homogeneous(space)]]
    return Gain(space, found[pool_of_kairos(space)], same)


def gain_rows(gain: Gain, name: str, published: float | None) -> list[Row]:
    """Return the gain, and the two goodputs that it is made of."""
    note = f"{name_of(gain.space.chosen)} against {name_of(gain.space.same)}"
    return [
        row(f"{name}: gain", gain.ratios, unit="times", published=published, note=note),
        row(f"{name}: kairos", gain.kairos, unit=UNIT),
        row(f"{name}: homogeneous, scaled", gain.same, unit=UNIT),
    ]


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
    axes.flat[0].set_ylabel("goodput, times")
    style.legend(axes.flat[0], loc="upper left")
