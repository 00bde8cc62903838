"""Nexus, Figures 3 and 4: the best split of an SLO depends on how often the second stage is called.

Two models with the throughput that Figure 3 gives them at 40, 50 and 60 ms, in a query of 100 ms. All times
are doubled here, so that the batches behind those throughputs are whole: 16 in 80 ms, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tuner.experiments.frame.drawing import curves_drawn
from tuner.experiments.frame.experiment import Answers, Experiment, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.planning.queries.query import Query
from tuner.planning.queries.rivals import accelerators
from tuner.planning.queries.split import best_split, choices_of
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["SplitOfASlo", "SplitTask"]

X = {80: 16, 100: 25, 120: 36}
Y = {80: 24, 100: 40, 120: 60}
"""Time of a stage, ms -> its batch: 200, 250 and 300 requests/s of x; 300, 400 and 500 of y."""
SLO, RATE = 200, 1000.0
"""ms, queries/s"""
PUBLISHED = {
    0.1: {80: 192.3, 100: 235.3, 120: 272.7},
    1.0: {80: 142.9, 100: 153.8, 120: 150.0},
    10.0: {80: 40.0, 100: 34.5, 120: 27.3},
}
"""gamma -> time of x, ms -> queries/s of an accelerator (Fig. 4)."""


class SplitTask(NamedTuple):
    """A query, and a split of its SLO."""

    gamma: float
    """Calls of y for each of x."""
    time: int
    """Of x, ms; y has the rest."""


class Throughput(NamedTuple):
    """Queries/s of an accelerator."""

    given: float
    """With the split."""
    best: float
    """With the planner's own split."""


@experiment(
    name="nexus-fig4",
    title="Queries/s of an accelerator, by the split of the SLO",
    paper="Nexus",
    minutes=0.1,
    repeated=False,
)
class SplitOfASlo(Experiment[SplitTask, Throughput]):
    """The nine splits, and the planner's choice among them."""

    def tasks(self) -> list[SplitTask]:
        return [SplitTask(gamma, time) for gamma, given in PUBLISHED.items() for time in given]

    def measure(self, task: SplitTask, seed: int) -> Throughput:  # noqa: ARG002 - nothing is random
        query = query_of(task.gamma)
        choices = choices_of(query)
        given = {"x": X[task.time], "y": Y[SLO - task.time]}
        splits = (given, best_split(query, choices))
        return Throughput(*(RATE / sum(accelerators(query, choices, one).values()) for one in splits))

    def rows(self, found: Answers[SplitTask, Throughput]) -> Iterator[Row]:
        for task, answers in found.items():
            name = f"gamma {task.gamma:g}, x in {task.time // 2} of 100 ms"
            best = PUBLISHED[task.gamma][task.time] == max(PUBLISHED[task.gamma].values())
            chosen = all(abs(one.given - one.best) < 1e-6 for one in answers)
            note = "the best of three in the paper" if best else ""
            note += "; the planner's choice" if best and chosen else ""
            published = PUBLISHED[task.gamma][task.time]
            yield row(name, [one.given for one in answers], unit="queries/s", published=published, note=note)

    def series(self, found: Answers[SplitTask, Throughput]) -> Iterator[Series]:
        for gamma, given in PUBLISHED.items():
            values = [[one.given for one in found[SplitTask(gamma, time)]] for time in given]
            yield curve(f"gamma {gamma:g}", [time / 2 for time in given], values)

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the throughput against the time of the first stage."""
        drawing, _ = curves_drawn(
            result,
            "The best split depends on gamma",
            xlabel="time of x, ms of 100",
            ylabel="queries/s of an accelerator",
        )
        return [drawing]


def query_of(gamma: float) -> Query:
    """Return the query of Figure 3."""
    stages: list[dict[str, Any]] = [
        {"name": "x", "profile_ms": {b: t for t, b in X.items()}, "next": [{"stage": "y", "gamma": gamma}]},
        {"name": "y", "profile_ms": {b: t for t, b in Y.items()}},
    ]
    return Query.model_validate({"slo_ms": SLO, "rate": RATE, "stages": stages})
