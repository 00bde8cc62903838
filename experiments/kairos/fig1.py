"""Kairos, Figure 1: mixed pools against the homogeneous one for RM2, first come, first served (Ribbon)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tuner.experiments.frame.experiment import Answers, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import UNIT, Cell, CellExperiment, Pool
from tuner.planning.pools.paper import BUDGET, paper_catalogue
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["POOLS", "MixedPools", "cost_of", "name_of_three"]

POOLS: tuple[Pool, ...] = ((4, 0, 0, 0), (3, 1, 3, 0), (2, 0, 9, 0), (1, 4, 2, 0))
"""G1, C1 and C2 of the paper are g4dn.xlarge, c5n.2xlarge and r5n.large."""
PUBLISHED: dict[Pool, float] = {(3, 1, 3, 0): 1.15}
"""Times the homogeneous pool (section 4); the other two are below 1 in the figure."""
ARRIVALS = {"poisson": "exponential gaps", "integer_poisson": "gaps of whole ms"}


@experiment(
    name="kairos-fig1",
    title="Mixed pools for RM2 against the homogeneous one, first come, first served",
    paper="Kairos",
    minutes=1,
)
class MixedPools(CellExperiment):
    """The four pools with both kinds of gaps between arrivals."""

    def tasks(self) -> list[Cell]:
        return [self._cell(arrival, pool) for arrival in ARRIVALS for pool in POOLS]

    def rows(self, found: Answers[Cell, float]) -> Iterator[Row]:
        for arrival, words in ARRIVALS.items():
            rates = self._rates(found, arrival)
            for pool, values in rates.items():
                name = f"{name_of_three(pool)}, {words}"
                note = "scaled up to 2.5 $/h" if pool == POOLS[0] else ""
                yield row(f"{name}: throughput", values, unit=UNIT, note=note)
                if pool != POOLS[0]:
                    ratios = [one / other for one, other in zip(values, rates[POOLS[0]], strict=True)]
                    published = PUBLISHED.get(pool)
                    yield row(f"{name}: over homogeneous", ratios, unit="times", published=published)

    def series(self, found: Answers[Cell, float]) -> Iterator[Series]:
        for arrival, words in ARRIVALS.items():
            yield curve(words, range(len(POOLS)), list(self._rates(found, arrival).values()))

    def configuration(self) -> dict[str, Any]:
        return super().configuration() | {"policy": "ribbon", "arrivals": list(ARRIVALS.values())}

    def _cell(self, arrival: str, pool: Pool) -> Cell:
        return Cell(self.setting("rm2", arrival=arrival), pool, "ribbon")

    def _rates(self, found: Answers[Cell, float], arrival: str) -> dict[Pool, list[float]]:
        """What each pool serves, the homogeneous one scaled up to the whole budget."""
        rates = {pool: found[self._cell(arrival, pool)] for pool in POOLS}
        scale = BUDGET / cost_of(POOLS[0])
        return rates | {POOLS[0]: [rate * scale for rate in rates[POOLS[0]]]}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw goodput and cost of the four pools."""
        figure, axes = style.figure("RM2, first come, first served", columns=2)
        left, right = axes.flat
        names = [name_of_three(pool) for pool in POOLS]
        style.bars(left, names, [(one.name, one.y) for one in result.series])
        left.axhline((result.series[0].y[0] or 0.0), color=style.MUTED, lw=1, ls="--")
        left.set(title="instances of (g4dn.xlarge, c5n.2xlarge, r5n.large)")
        left.set_ylabel("goodput, requests/s")
        style.legend(left)
        costs = [BUDGET, *(cost_of(pool) for pool in POOLS[1:])]
        right.bar(names, costs, 0.6, color=style.MUTED)
        right.axhline(BUDGET, color=style.INK, lw=1, ls="--")
        right.set(title="cost; the first scaled up to the budget", ylabel="$/h", ylim=(0, 3))
        return [style.Drawing(figure)]


def cost_of(pool: Pool) -> float:
    """Return what a pool costs, $/h."""
    return sum(kind.price * count for kind, count in zip(paper_catalogue(), pool, strict=True))


def name_of_three(pool: Pool) -> str:
    """Write a pool by its first three types, as the paper does here."""
    return f"({', '.join(str(count) for count in pool[:3])})"
