"""Nexus, Figure 17: what query analysis gains over an even split of the SLO.

A query of two stages on 8 accelerators: SSD detects, and Inception recognises what was detected, gamma times
for each query. Profiles are those of Symphony's Table 5, because Nexus' own are not public. A request waits
as long as its batch executes, as Nexus counts; the rate is the highest that 8 accelerators bear by the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from tuner.experiments.frame.drawing import curves_drawn
from tuner.experiments.frame.experiment import Answers, Experiment, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.zoo import GTX_1080TI, model
from tuner.planning.queries.plan import plan_query
from tuner.planning.queries.query import Query
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["QueryAnalysis", "QueryTask"]

ACCELERATORS = 8
SLOS = (300, 350, 400, 450, 500)
"""ms"""
GAMMAS = (0.1, 1.0, 10.0)
LEAST, MOST = 13.0, 55.0
"""% that the paper gains."""
MANY = 10_000.0
"""Queries/s so high that every batch fills while the one before executes."""


class QueryTask(NamedTuple):
    """A query."""

    slo: int
    """ms"""
    gamma: float


class Planned(NamedTuple):
    """Queries/s on all accelerators."""

    analysed: float
    even: float
    first: float
    """Part of the SLO that the first stage gets, %."""

    @property
    def gain(self) -> float:
        """How much more, %."""
        return 100 * (self.analysed / self.even - 1) if self.even else float("inf")


@experiment(
    name="nexus-fig17",
    title="Query analysis against an even split of the SLO",
    paper="Nexus",
    minutes=0.1,
    repeated=False,
)
class QueryAnalysis(Experiment[QueryTask, Planned]):
    """Every SLO and gamma."""

    def tasks(self) -> list[QueryTask]:
        return [QueryTask(*one) for one in product(SLOS, GAMMAS)]

    def measure(self, task: QueryTask, seed: int) -> Planned:  # noqa: ARG002 - nothing is random
        plan = plan_query(_query(task))
        even = 0.0 if plan.even_split is None else ACCELERATORS * MANY / plan.even_split
        return Planned(
            analysed=ACCELERATORS * MANY / plan.accelerators,
            even=even,
            first=100e3 * plan.stages[0].budget / task.slo,
        )

    def rows(self, found: Answers[QueryTask, Planned]) -> Iterator[Row]:
        for task, (one,) in found.items():
            note = (
                f"{one.analysed:.0f} against {one.even:.0f} queries/s; "
                f"the first stage gets {one.first:.0f} %; published: {LEAST:g} to {MOST:g} %"
            )
            yield row(f"SLO {task.slo} ms, gamma {task.gamma:g}: more", [one.gain], unit="%", note=note)
        least = min(one.gain for (one,) in found.values())
        yield row("least gain of all", [least], unit="%", published=LEAST)

    def series(self, found: Answers[QueryTask, Planned]) -> Iterator[Series]:
        for gamma in GAMMAS:
            values = [[one.gain for one in found[QueryTask(slo, gamma)]] for slo in SLOS]
            yield curve(f"gamma {gamma:g}", SLOS, values)

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the gain against the SLO."""
        title = "Query analysis over an even split"
        drawing, axis = curves_drawn(result, title, xlabel="SLO, ms", ylabel="more queries/s, %")
        axis.axhspan(LEAST, MOST, color="0.93", zorder=0)
        return [drawing]


def _query(task: QueryTask) -> Query:
    first, second = model("SSDMobilenet", GTX_1080TI), model("InceptionV3", GTX_1080TI)
    stages: list[dict[str, Any]] = [
        {
            "name": "detect",
            "alpha_ms": first.alpha_ms,
            "beta_ms": first.beta_ms,
            "next": [{"stage": "recognise", "gamma": task.gamma}],
        },
        {"name": "recognise", "alpha_ms": second.alpha_ms, "beta_ms": second.beta_ms},
    ]
    return Query.model_validate({"slo_ms": task.slo, "rate": MANY, "worst_case": True, "stages": stages})
