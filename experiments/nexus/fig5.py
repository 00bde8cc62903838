"""Nexus, Figure 5: lazy dropping under even and under Poisson arrivals at 90 % of the optimum.

Early dropping (section 6.3) is drawn beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from tuner.cluster import simulate
from tuner.experiments.frame.drawing import curves_drawn
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.nexus.one_accelerator import ALPHAS, OPTIMUM, SLO, scenario
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["Dropping", "DroppingRule", "LazyDropping"]

LOAD = 0.9
"""Of the optimum."""
DROPS = ("lazy", "early")
ARRIVALS = {"uniform": "constant", "Poisson": "poisson"}
SHOWN = (1.0, 1.4, 1.8)
"""The alphas that have rows."""


class DroppingRule(NamedTuple):
    """One simulation: a drop rule under a kind of arrivals."""

    drop: str
    arrival: str
    alpha: float


class Dropping(NamedTuple):
    """What came of it."""

    bad: float  # % of the requests
    batch: float  # mean


@experiment(
    name="nexus-fig5",
    title="Lazy dropping under even and under Poisson arrivals",
    paper="Nexus",
    minutes=0.5,
)
class LazyDropping(Experiment[DroppingRule, Dropping]):
    """Every alpha, drop rule and kind of arrivals."""

    seconds = Scaled(1000.0, quick=40.0)

    def tasks(self) -> list[DroppingRule]:
        return [DroppingRule(*each) for each in product(DROPS, ARRIVALS, ALPHAS)]

    def measure(self, task: DroppingRule, seed: int) -> Dropping:
        tried = scenario(
            task.alpha,
            task.drop,
            rate=LOAD * OPTIMUM,
            arrival=ARRIVALS[task.arrival],
            seconds=self.seconds,
            seed=seed,
        )
        outcome = simulate(tried)
        return Dropping(100 * outcome.bad_rate, outcome.sessions[0].mean_batch)

    def rows(self, found: Answers[DroppingRule, Dropping]) -> Iterator[Row]:
        for (drop, arrival, alpha), answers in found.items():
            if alpha in SHOWN:
                note = f"mean batch {sorted(each.batch for each in answers)[len(answers) // 2]:.1f}"
                bad = [each.bad for each in answers]
                yield row(f"{drop}, {arrival}, alpha {alpha}: bad rate", bad, unit="%", note=note)

    def series(self, found: Answers[DroppingRule, Dropping]) -> Iterator[Series]:
        for drop, arrival in product(DROPS, ARRIVALS):
            answers = [found[DroppingRule(drop, arrival, alpha)] for alpha in ALPHAS]
            yield curve(f"{drop}, {arrival}", ALPHAS, [[each.bad for each in some] for some in answers])

    def configuration(self) -> dict[str, Any]:
        return {"slo_ms": SLO, "rate": LOAD * OPTIMUM, "measured_seconds": self.seconds}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the bad rate against alpha."""
        drawing, axis = curves_drawn(
            result,
            "Dropping at 90 % of the optimum, SLO 100 ms",
            size=(6.4, 3.8),
            legend="center left",
            xlabel="alpha, ms per request (beta falls from 25 to 5 ms)",
            ylabel="late or dropped, %",
        )
        axis.set_ylim(bottom=-1)
        return [drawing]
