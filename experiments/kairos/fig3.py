"""Kairos, Figure 3: what a pool serves depends on the distribution policy (RM2)."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.experiments.frame.experiment import Answers, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import POLICIES, UNIT, Cell, CellExperiment
from tuner.experiments.kairos.fig1 import POOLS, name_of_three
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["PoolsByPolicy"]

MIXED = POOLS[1:]


@experiment(
    name="kairos-fig3",
    title="Three mixed pools for RM2 under every distribution policy",
    paper="Kairos",
    minutes=1,
)
class PoolsByPolicy(CellExperiment):
    """The mixed pools of Figure 1 under every policy."""

    def tasks(self) -> list[Cell]:
        return [Cell(self.setting("rm2"), pool, policy) for policy in POLICIES for pool in MIXED]

    def rows(self, found: Answers[Cell, float]) -> Iterator[Row]:
        for cell, rates in found.items():
            yield row(f"{name_of_three(cell.pool)}, {cell.policy}", rates, unit=UNIT)

    def series(self, found: Answers[Cell, float]) -> Iterator[Series]:
        for policy in POLICIES:
            rates = [found[Cell(self.setting("rm2"), pool, policy)] for pool in MIXED]
            yield curve(policy, range(len(MIXED)), rates)

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the policies side by side for each pool."""
        figure, axes = style.figure("RM2: three pools under every distribution policy", size=(7.5, 3.6))
        (axis,) = axes.flat
        bars = [(one.name, one.y) for one in result.series]
        style.bars(axis, [name_of_three(pool) for pool in MIXED], bars)
        axis.set_xlabel("instances of (g4dn.xlarge, c5n.2xlarge, r5n.large)")
        axis.set_ylabel("goodput, requests/s")
        axis.set_ylim(top=160)
        style.legend(axis, ncols=4, loc="upper center")
        return [style.Drawing(figure)]
