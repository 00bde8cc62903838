"""PARD (arXiv 2602.08747): queries answered in time with proactive deadlines and with reactive ones.

The kinds of queries are the paper's: chains of three and of five models, and a graph that forks and joins.
Its models, traces and 64 GPUs are not ours: stages have lines of usual proportions, and the load alternates
between a low and a high rate around what the accelerators were planned for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tuner.cluster.pipelines import Deadlines, PipelineScenario, simulate_pipeline
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.planning.queries import Query, plan_query
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["ProactiveDropping"]

ACCELERATORS = 16
HOP_MS = 1.0
PLANNED = 0.85
"""Share of the accelerators that the plan needs, with the worst waiting."""
SWING = 0.5
"""By which the load goes up and down, relative to its mean."""
PERIOD = 5.0
"""s between two changes of the load."""
LINES = {"a": (2.0, 12.0), "b": (1.0, 8.0), "c": (1.5, 20.0), "d": (0.8, 6.0), "e": (3.0, 10.0)}
"""alpha and beta of each model, ms."""
QUERIES: dict[str, tuple[float, dict[str, str]]] = {
    "chain of 3": (400.0, {"a": "b", "b": "c", "c": ""}),
    "chain of 5": (500.0, {"a": "b", "b": "c", "c": "d", "d": "e", "e": ""}),
    "graph of 5": (420.0, {"a": "bc", "b": "d", "c": "e", "d": "e", "e": ""}),
}
"""Name -> SLO, ms, and which stages each calls."""
RULES: dict[str, tuple[str, Deadlines]] = {
    "Nexus: early drop, split": ("early", "split"),
    "lazy drop, split": ("lazy", "split"),
    "early drop, carried": ("early", "carried"),
    "early drop, proactive": ("early", "proactive"),
    "lazy drop, proactive": ("lazy", "proactive"),
}
"""Name -> the backends' rule of dropping, and the deadlines."""
REACTIVE = "Nexus: early drop, split"
LEAST = 16.0
"""% more goodput than reactive rules in the paper, at least; 176 at most."""


class DropTask(NamedTuple):
    """A query under a rule at a load."""

    query: str
    rule: str
    load: float
    """Relative to what was planned for."""


class Dropped(NamedTuple):
    """What came of it."""

    good: float
    """Share of the queries answered in time, %."""
    wasted: float
    """Share of the accelerators' work that was for others, %."""


@experiment(name="pard-drop", title="Proactive against reactive dropping in queries", paper="PARD", minutes=3)
class ProactiveDropping(Experiment[DropTask, Dropped]):
    """Every query under every rule, at loads below and above what can be served."""

    seconds = Scaled(30.0, quick=10.0)
    loads = Scaled((1.0, 1.25, 1.5, 2.0), quick=(1.5,))

    def tasks(self) -> list[DropTask]:
        return [DropTask(*each) for each in product(QUERIES, RULES, self.loads)]

    def measure(self, task: DropTask, seed: int) -> Dropped:
        drop, deadlines = RULES[task.rule]
        query = query_of(task.query)
        rate = task.load * query.rate
        times = np.arange(0.0, self.seconds + 2 * PERIOD, PERIOD)
        swing = np.where(np.arange(times.size) % 2, 1 + SWING, 1 - SWING)
        outcome = simulate_pipeline(
            PipelineScenario(
                query=query,
                policy="nexus",
                options={"drop": drop},
                deadlines=deadlines,
                accelerators=ACCELERATORS,
                load=tuple(zip(times.tolist(), (rate * swing).tolist(), strict=True)),
                hop_ms=HOP_MS,
                warmup_seconds=2 * PERIOD,
                seconds=self.seconds,
                seed=seed,
            )
        )
        return Dropped(100 * (1 - outcome.bad_rate), 100 * outcome.wasted)

    def rows(self, found: Answers[DropTask, Dropped]) -> Iterator[Row]:
        for task, answers in found.items():
            before = found[task._replace(rule=REACTIVE)]
            wasted = np.median([one.wasted for one in answers])
            good = np.median([one.good for one in answers])
            note = f"{good:.1f} % in time; {wasted:.1f} % of the work in vain"
            if task.rule != REACTIVE:
                yield row(
                    f"{task.query}, load {task.load:g}, {task.rule}: more goodput than Nexus",
                    [100 * (one.good / other.good - 1) for one, other in zip(answers, before, strict=True)],
                    unit="%",
                    published=LEAST if task.rule == "early drop, proactive" and task.load > 1 else None,
                    note=note,
                )
            else:
                yield row(
                    f"{task.query}, load {task.load:g}, {task.rule}: in time",
                    [one.good for one in answers],
                    unit="%",
                    note=note,
                )

    def series(self, found: Answers[DropTask, Dropped]) -> Iterator[Series]:
        for query, rule in product(QUERIES, RULES):
            own = [found[DropTask(query, rule, load)] for load in self.loads]
            yield curve(rule, self.loads, [[one.good for one in each] for each in own], panel=query)

    def configuration(self) -> dict[str, Any]:
        return {
            "accelerators": ACCELERATORS,
            "rates": {name: query_of(name).rate for name in QUERIES},
            "swing": SWING,
            "period": PERIOD,
            "hop_ms": HOP_MS,
        }

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the share in time against the load, for each query."""
        figure, axes = style.figure("Queries answered in time", columns=len(QUERIES))
        for axis, query in zip(axes.flat, QUERIES, strict=True):
            style.curves(axis, result.panel(query))
            axis.set(xlabel="load, relative to the plan", title=query)
        axes.flat[0].set_ylabel("%")
        style.legend(axes.flat[0])
        return [style.Drawing(figure)]


def query_of(name: str) -> Query:
    """Return a query at the rate that the accelerators are planned for."""
    slo_ms, calls = QUERIES[name]
    stages = [
        {
            "name": stage,
            "alpha_ms": LINES[stage][0],
            "beta_ms": LINES[stage][1],
            "next": [{"stage": called} for called in following],
        }
        for stage, following in calls.items()
    ]
    fields = {"slo_ms": slo_ms, "stages": stages, "worst_case": True}
    one = Query.model_validate({**fields, "rate": 100.0})
    rate = 100.0 * PLANNED * ACCELERATORS / plan_query(one).accelerators
    return Query.model_validate({**fields, "rate": round(rate, 1)})
