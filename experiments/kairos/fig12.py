"""Kairos, Figure 12: what each scheme tries after the sizes of RM2's requests have become Gaussian.

Kairos chooses once, from bounds. Kairos+ tries pools from the highest bound down. The rivals search again by
Ribbon's Bayesian optimisation, each under its own distribution policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tuner.experiments.frame.experiment import Answers, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import (
    GAUSSIAN,
    UNIT,
    Cell,
    Pool,
    PoolExperiment,
    PoolSetting,
    make_space,
    name_of,
)
from tuner.planning.pools.rivals import bayesian_search
from tuner.planning.pools.search import kairos_plus
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["ReactionToSizes"]

MODEL = "rm2"
SCHEMES = ("kairos", "kairos+", "ribbon", "drs", "clkwrk", "clkwrk, refusing")
ORACLE = 15.0
"""%, within which of the oracle Kairos and Kairos+ are published to be."""
Tried = list[tuple[Pool, float]]
"""The pools that a scheme tries, and what they serve, requests/s; the last one stays."""


@experiment(
    name="kairos-fig12",
    title="What each scheme tries after the request sizes of RM2 have become Gaussian",
    paper="Kairos",
    minutes=2,
)
class ReactionToSizes(PoolExperiment[str | Cell, Any]):
    """Lets every scheme react; for the oracle, measures every pool."""

    shown = Scaled(20, quick=3)
    """Evaluations of each scheme."""

    def tasks(self) -> list[str | Cell]:
        pools = make_space(self._changed).highest(self.shown if self.options.quick else None)
        return [*SCHEMES, *(Cell(self._changed, pool, "oracle") for pool in pools)]

    def seeds_of(self, task: str | Cell) -> Sequence[int]:
        return super().seeds_of(task) if isinstance(task, str) else (self.first_seed,)

    def measure(self, task: str | Cell, seed: int) -> Tried | float:
        return self.react(task, seed) if isinstance(task, str) else self.rate(task, seed)

    def react(self, scheme: str, seed: int) -> Tried:
        """Return what a scheme tries after the change."""
        space = make_space(self._changed)
        policy = "kairos" if scheme == "kairos+" else scheme

        def evaluate(pool: Pool) -> float:
            return self.rate(Cell(self._changed, pool, policy), seed)

        if scheme == "kairos":
            return [(space.chosen, evaluate(space.chosen))]
        if scheme == "kairos+":
            found = kairos_plus(space.pools, space.bound, space.order, evaluate, self.shown)
            assert found.pool is not None
            return [*found.evaluations, (found.pool, found.rate)]
        generator = np.random.default_rng((seed, 12))
        return list(bayesian_search(space.pools, evaluate, generator, self.shown).evaluations)

    def rows(self, found: Answers[str | Cell, Any]) -> Iterator[Row]:
        oracle = max(rate for task, (rate, *_) in found.items() if isinstance(task, Cell))
        yield row("oracle, best pool", [oracle], unit=UNIT)
        for scheme in SCHEMES:
            runs: list[Tried] = found[scheme]
            best = [max(rate for _, rate in tried) for tried in runs]
            name = f"{scheme}: best of {self.shown} evaluations"
            yield row(name, best, unit=UNIT, note=_note(scheme, runs))
            below = [100 * (1 - rate / oracle) for rate in best]
            published = ORACLE if scheme in SCHEMES[:2] else None
            yield row(f"{scheme}: below the oracle", below, unit="%", published=published)
        once = [tried[0][1] for tried in found["kairos"]]
        for scheme in SCHEMES[2:]:
            waits = [
                float(next((n for n, (_, rate) in enumerate(tried, 1) if rate >= goal), np.inf))
                for tried, goal in zip(found[scheme], once, strict=True)
            ]
            yield row(f"{scheme}: evaluations until it serves what kairos does", waits, unit="pools")

    def series(self, found: Answers[str | Cell, Any]) -> Iterator[Series]:
        steps = range(self.shown)
        for scheme in SCHEMES:
            rates = [[tried[min(step, len(tried) - 1)][1] for tried in found[scheme]] for step in steps]
            yield curve(scheme, [step + 1 for step in steps], rates)

    def configuration(self) -> dict[str, Any]:
        return super().configuration() | {"model": MODEL, "sizes": GAUSSIAN}

    @property
    def _changed(self) -> PoolSetting:
        return self.setting(MODEL, sizes=GAUSSIAN)

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the goodput of the pool that each scheme runs at each step."""
        title = "RM2 after its sizes became Gaussian: the pools that are tried"
        figure, axes = style.figure(title, size=(8, 4))
        (axis,) = axes.flat
        for one in result.series:
            color, marker = style.look(one.name)
            heights = [y or 0.0 for y in one.y]
            axis.plot(one.x, heights, color=color, marker=marker, ms=4, lw=1.2, label=one.name)
        oracle = next(each.measured for each in result.rows if each.id.startswith("oracle"))
        axis.axhline(oracle or 0.0, color=style.INK, lw=1, ls="--", label="oracle, best pool")
        axis.set(xlabel="evaluation", ylabel="goodput, requests/s", ylim=(0, 155))
        axis.set_xticks([1, *range(5, len(result.series[0].x) + 1, 5)])
        style.legend(axis, ncols=4, fontsize=7, loc="upper center")
        return [style.Drawing(figure)]


def _note(scheme: str, runs: list[Tried]) -> str:
    if scheme == "kairos":
        return f"{name_of(runs[0][0][0])}, in one step"
    if scheme == "kairos+":
        return f"{name_of(runs[0][-1][0])}, sure after {max(len(tried) - 1 for tried in runs)} evaluations"
    return ""
