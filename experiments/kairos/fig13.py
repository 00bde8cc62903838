"""Kairos, Figure 13: the measured goodput of the twenty pools with the highest bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.experiments.frame.experiment import Answers, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import LABELS, Cell, CellExperiment, Pool, PoolSpace, name_of
from tuner.experiments.kairos.pools import first_seed_pools
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["HighestBounds"]

WITHIN = 10
"""Published: the best pool is always among this many of the highest bounds."""
BOUND, MEASURED, CHOSEN = "bound", "kairos", "chosen"
Rates = dict[Pool, list[float]]
"""Requests/s of each of the pools with the highest bounds, per seed."""


@experiment(
    name="kairos-fig13",
    title="What the pools with the highest bounds serve",
    paper="Kairos",
    minutes=2,
)
class HighestBounds(CellExperiment):
    """The pools with the highest bounds; with the first seed all pools were measured before."""

    shown = Scaled(20, quick=3)

    def tasks(self) -> list[Cell]:
        return [
            Cell(space.setting, pool)
            for space in self.spaces().values()
            for pool in space.highest(self.shown)
        ]

    def prepare(self) -> None:
        """Read what all pools serve with the first seed."""
        self._stored = first_seed_pools(self.options.folder)

    def seeds_of(self, task: Cell) -> Sequence[int]:
        return super().seeds_of(task)[1:]

    def rows(self, found: Answers[Cell, float]) -> Iterator[Row]:
        for model, space in self.spaces().items():
            yield from _rows(LABELS[model], space, self._rates(found, space), self._stored[model])

    def series(self, found: Answers[Cell, float]) -> Iterator[Series]:
        for model, space in self.spaces().items():
            rates, label = self._rates(found, space), LABELS[model]
            places = range(1, len(rates) + 1)
            bounds = space.bound[space.order[: len(rates)]].tolist()
            yield curve(BOUND, places, [[bound] for bound in bounds], panel=label)
            yield curve(MEASURED, places, list(rates.values()), panel=label)
            if space.chosen in rates:
                place = list(rates).index(space.chosen) + 1
                yield curve(CHOSEN, [place], [rates[space.chosen]], panel=label)

    def _rates(self, found: Answers[Cell, float], space: PoolSpace) -> Rates:
        stored = self._stored[space.setting.model]
        return {pool: [stored[pool], *found[Cell(space.setting, pool)]] for pool in space.highest(self.shown)}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw bounds and measured goodputs, with a star at Kairos's choice."""
        figure, axes = style.figure(
            "The twenty highest bounds, and what these pools serve under Kairos", columns=5, size=(14, 3.2)
        )
        for axis, label in zip(axes.flat, LABELS.values(), strict=True):
            bound, measured, *others = result.panel(label)
            axis.plot(bound.x, style.floats(bound.y), color=style.MUTED, marker=".", lw=1, label="bound")
            color = style.look("kairos").color
            rates = style.floats(measured.y)
            axis.plot(measured.x, rates, color=color, marker="o", ms=4, lw=0.8, label="measured")
            for chosen in others:
                rates = style.floats(chosen.y)
                axis.scatter(
                    chosen.x, rates, marker="*", s=130, color=style.PALETTE[1], zorder=4, label=CHOSEN
                )
            axis.set(title=label, xlabel="rank of the bound", ylim=(0, None))
        axes.flat[0].set_ylabel("requests/s")
        style.legend(axes.flat[0], loc="lower left")
        return [style.Drawing(figure)]


def _rows(label: str, space: PoolSpace, rates: Rates, stored: dict[Pool, float]) -> Iterator[Row]:
    """Where the best pool stands: with the first seed of all pools, with the others of the highest bounds."""
    order = space.highest()
    seeds = range(len(next(iter(rates.values()))))
    best = [max(rates, key=lambda pool: rates[pool][seed]) for seed in seeds]
    best[0] = max(stored, key=lambda pool: stored[pool])
    yield row(
        f"{label}: place of the best pool among the bounds",
        [float(order.index(pool) + 1) for pool in best],
        published=float(WITHIN),
        note=f"{' '.join(dict.fromkeys(map(name_of, best)))}; published: at most",
    )
    if space.chosen in rates:
        tops = [stored[best[0]], *(rates[pool][seed] for seed, pool in enumerate(best) if seed)]
        shares = [100 * rate / top for rate, top in zip(rates[space.chosen], tops, strict=True)]
        yield row(f"{label}: chosen over best", shares, unit="%", note=name_of(space.chosen))
