"""Kairos, Figure 14: the pools with the highest bounds for RM2 under other distribution policies."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from tuner.experiments.frame.experiment import Answers, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import UNIT, Cell, CellExperiment, Pool, make_space, name_of
from tuner.experiments.kairos.pools import measured_pools
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["BoundsByPolicy"]

MODEL = "rm2"
MEASURED = ("kairos", "ribbon", "drs", "clkwrk", "clkwrk, refusing")
ORACLE = "oracle, best pool"


@experiment(
    name="kairos-fig14",
    title="The highest bounds for RM2 under other distribution policies",
    paper="Kairos",
    minutes=1,
)
class BoundsByPolicy(CellExperiment):
    """The pools under all policies; which pool is best for the oracle was measured before."""

    shown = Scaled(10, quick=2)

    def tasks(self) -> list[Cell]:
        cells = [self._cell(pool, policy) for policy in MEASURED for pool in self._bounds()]
        return [*cells, self._oracle()]

    def rows(self, found: Answers[Cell, float]) -> Iterator[Row]:
        oracle = self._oracle()
        yield row(ORACLE, found[oracle], unit=UNIT, note=name_of(oracle.pool))
        for pool, bound in self._bounds().items():
            yield row(f"{name_of(pool)}, bound", [bound], unit=UNIT)
            for policy in MEASURED:
                rates = found[self._cell(pool, policy)]
                note = f"{100 * median(rates) / bound:.0f} % of the bound"
                yield row(f"{name_of(pool)}, {policy}", rates, unit=UNIT, note=note)

    def series(self, found: Answers[Cell, float]) -> Iterator[Series]:
        bounds = self._bounds()
        places = range(1, len(bounds) + 1)
        yield curve("bound", places, [[bound] for bound in bounds.values()])
        for policy in MEASURED:
            yield curve(policy, places, [found[self._cell(pool, policy)] for pool in bounds])
        yield curve(ORACLE, [1, self.shown], [found[self._oracle()]] * 2)

    def _bounds(self) -> dict[Pool, float]:
        """The highest bounds, requests/s, by pool."""
        space = make_space(self.setting(MODEL))
        bounds = space.bound[space.order[: self.shown]].tolist()
        return dict(zip(space.highest(self.shown), bounds, strict=True))

    def _cell(self, pool: Pool, policy: str) -> Cell:
        return Cell(self.setting(MODEL), pool, policy)

    def _oracle(self) -> Cell:
        stored = measured_pools(self.options.folder, MODEL)["oracle"]
        return self._cell(max(stored, key=lambda pool: stored[pool]), "oracle")

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the goodput of each pool under each policy."""
        title = "RM2: the ten highest bounds under other distribution policies"
        figure, axes = style.figure(title, size=(7, 4))
        (axis,) = axes.flat
        *curves, oracle = result.series
        style.curves(axis, curves)
        axis.plot(oracle.x, style.floats(oracle.y), color=style.INK, ls="--", lw=1, label=oracle.name)
        axis.set(xlabel="rank of the bound", ylabel="goodput, requests/s", ylim=(0, 185))
        style.legend(axis, ncols=4, loc="upper center", fontsize=7)
        return [style.Drawing(figure)]
