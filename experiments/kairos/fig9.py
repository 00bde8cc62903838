"""Kairos, Figure 9: its goodput against rival distribution policies, which get the oracle's best pool."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.experiments.frame.experiment import Answers, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import (
    LABELS,
    POLICIES,
    UNIT,
    Cell,
    CellExperiment,
    Pool,
    PoolSetting,
    make_space,
    name_of,
)
from tuner.experiments.kairos.pools import measured_pools
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["RivalPolicies"]

PUBLISHED = {"ribbon": 1.5}
"""Section 8.2: "around 1.5 times the throughput of Ribbon", up to 1.44 times that of drs and clkwrk."""
LEAST = {"ribbon": 1.4, "drs": 1.0, "clkwrk": 1.0}
"""What we set out to reach, on the same pool."""
CHOSEN, BEST, GIVEN = "kairos", "kairos+", "the oracle's best pool"
"""Whose pool; if Kairos chooses the oracle's best, there is one."""
BARS = (
    (CHOSEN, CHOSEN, "kairos"),
    (BEST, BEST, "kairos"),
    *(
        (policy, GIVEN, policy)
        for policy in ("ribbon", "drs", "clkwrk", "clkwrk, refusing", "kairos, refusing", "oracle")
    ),
)
"""The name of a bar, whose pool it has, and under which policy."""


@experiment(
    name="kairos-fig9",
    title="Goodput against Ribbon, DeepRecSys and Clockwork, which get the oracle's best pool",
    paper="Kairos",
    minutes=3,
)
class RivalPolicies(CellExperiment):
    """Every policy on the pool that Kairos chooses and on the one that is best for the oracle."""

    def tasks(self) -> list[Cell]:
        return [
            Cell(self.setting(model), pool, policy)
            for model in LABELS
            for pool in self._pools(model).values()
            for policy in POLICIES
        ]

    def rows(self, found: Answers[Cell, float]) -> Iterator[Row]:
        for model, label in LABELS.items():
            pools = self._pools(model)
            for pool, which in {pools[which]: which for which in (GIVEN, CHOSEN)}.items():
                rates = {policy: found[Cell(self.setting(model), pool, policy)] for policy in POLICIES}
                yield from _rows(f"{label}, {which} {name_of(pool)}", rates)

    def series(self, found: Answers[Cell, float]) -> Iterator[Series]:
        for name, which, policy in BARS:
            cells = [Cell(self.setting(model), self._pools(model)[which], policy) for model in LABELS]
            yield curve(name, range(len(LABELS)), [found[cell] for cell in cells])

    def _pools(self, model: str) -> dict[str, Pool]:
        """Kairos's choice, the pool that Kairos+ finds, and the oracle's best."""
        measured = measured_pools(self.options.folder, model)
        best = {policy: max(rates, key=lambda pool: rates[pool]) for policy, rates in measured.items()}
        return {CHOSEN: make_space(PoolSetting(model)).chosen, BEST: best["kairos"], GIVEN: best["oracle"]}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw, for each model, all policies relative to the oracle."""
        figure, axes = style.figure(
            "All on the oracle's best pool, but kairos on its choice and kairos+ on the best", size=(9, 3.6)
        )
        (axis,) = axes.flat
        oracle = next(one for one in result.series if one.name == "oracle")
        heights = [
            (one.name, [(y or 0.0) / (top or 1.0) for y, top in zip(one.y, oracle.y, strict=True)])
            for one in result.series
            if one.name != "oracle"
        ]
        style.bars(axis, list(LABELS.values()), heights)
        axis.axhline(1, color=style.INK, lw=1, ls="--", label="oracle")
        axis.set(ylabel="goodput over the oracle's", ylim=(0, 1.3))
        style.legend(axis, ncols=4, loc="upper center")
        return [style.Drawing(figure)]


def _rows(name: str, rates: dict[str, list[float]]) -> Iterator[Row]:
    for policy, values in rates.items():
        yield row(f"{name}: {policy}", values, unit=UNIT)
    for policy in POLICIES[2:]:
        pairs = zip(rates["kairos"], rates[policy], strict=True)
        yield row(
            f"{name}: kairos over {policy}",
            [one / other if other else float("inf") for one, other in pairs],
            unit="times",
            published=PUBLISHED.get(policy),
            note=f"target: at least {LEAST[policy]:g}" if policy in LEAST else "",
        )
