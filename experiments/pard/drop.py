"""PARD (arXiv 2602.08747): queries answered in time with proactive deadlines and with reactive ones.

The kinds of queries are the paper's: chains of three and of five models, and a graph that forks and joins.
Its models, traces and 64 GPUs are not ours: stages have lines of usual proportions, and the load alternates
between a low and a high rate around what the accelerators were planned for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tuner.cluster.pipelines import Deadlines, PipelineScenario, simulate_pipeline
from tuner.experiments.frame.drawing import panels_drawn
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.planning.queries import Query, plan_query
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["DropTask", "Dropped", "ProactiveDropping", "chosen_quantiles", "query_of"]

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


class ServingRule(NamedTuple):
    """How requests are dropped and served."""

    drop: str
    """As in `batching.nexus`."""
    order: str
    """Likewise."""
    deadlines: Deadlines


RULES = {
    "Nexus: early drop, split": ServingRule("early", "least_left", "split"),
    "lazy drop, split": ServingRule("lazy", "least_left", "split"),
    "early drop, carried": ServingRule("early", "least_left", "carried"),
    "carried, adaptive order": ServingRule("early", "adaptive", "carried"),
    "early drop, proactive": ServingRule("early", "least_left", "proactive"),
    "lazy drop, proactive": ServingRule("lazy", "least_left", "proactive"),
    "proactive, most time left first": ServingRule("early", "most_left", "proactive"),
    "PARD: proactive, adaptive order": ServingRule("early", "adaptive", "proactive"),
}
REACTIVE, PARD = "Nexus: early drop, split", "PARD: proactive, adaptive order"
LEAST = 16.0
"""% more goodput than reactive rules in the paper, at least; 176 at most."""
THEIRS = 0.1
"""The quantile of the paper."""
NO_QUANTILE = 0.5
"""Of rules whose deadlines are not proactive, for which it does not matter."""
OTHER_SEED = 1000
"""With which quantiles are chosen."""


class DropTask(NamedTuple):
    """A query under a rule at a load."""

    query: str
    rule: str
    load: float
    """Relative to what was planned for."""
    quantile: float
    """That proactive deadlines leave time for."""


class Dropped(NamedTuple):
    """What came of it."""

    good: float
    """Share of the queries answered in time, %."""
    wasted: float
    """Share of the accelerators' work that was for others, %."""


Found = Answers[DropTask, Dropped]


@experiment(name="pard-drop", title="Proactive against reactive dropping in queries", paper="PARD", minutes=3)
class ProactiveDropping(Experiment[DropTask, Dropped]):
    """Every query under every rule, at loads below and above what can be served.

    The quantile of proactive deadlines is chosen before, for each rule at other loads and with another seed:
    that which answers most queries in time, over all queries and loads.
    """

    seconds = Scaled(30.0, quick=10.0)
    loads = Scaled((1.0, 1.25, 1.5, 2.0), quick=(1.5,))
    other_loads = Scaled((1.1, 1.4, 1.75), quick=(1.4,))
    """Where quantiles are chosen."""
    quantiles = Scaled((THEIRS, 0.5, 0.9, 0.99), quick=(THEIRS, 0.99))

    def prepare(self) -> None:
        proactive = [name for name, rule in RULES.items() if rule.deadlines == "proactive"]
        each = [DropTask(*one) for one in product(QUERIES, proactive, self.other_loads, self.quantiles)]
        self._tried = dict(zip(each, self.run_all(self._try, each, "quantiles"), strict=True))
        self._chosen = chosen_quantiles(self._tried)

    def _try(self, task: DropTask) -> Dropped:
        return self.measure(task, OTHER_SEED)

    def tasks(self) -> Iterator[DropTask]:
        for query, load in product(QUERIES, self.loads):
            yield from (self._reported(query, rule, load) for rule in RULES)
            yield DropTask(query, PARD, load, THEIRS)

    def _reported(self, query: str, rule: str, load: float) -> DropTask:
        return DropTask(query, rule, load, self._chosen.get(rule, NO_QUANTILE))

    def measure(self, task: DropTask, seed: int) -> Dropped:
        rule = RULES[task.rule]
        query = query_of(task.query)
        rate = task.load * query.rate
        times = np.arange(0.0, self.seconds + 2 * PERIOD, PERIOD)
        swing = np.where(np.arange(times.size) % 2, 1 + SWING, 1 - SWING)
        outcome = simulate_pipeline(
            PipelineScenario(
                query=query,
                policy="nexus",
                options={"drop": rule.drop, "order": rule.order},
                deadlines=rule.deadlines,
                gathering_quantile=task.quantile,
                accelerators=ACCELERATORS,
                load=tuple(zip(times.tolist(), (rate * swing).tolist(), strict=True)),
                hop_ms=HOP_MS,
                warmup_seconds=2 * PERIOD,
                seconds=self.seconds,
                seed=seed,
            )
        )
        return Dropped(100 * (1 - outcome.bad_rate), 100 * outcome.wasted)

    def rows(self, found: Found) -> Iterator[Row]:
        for rule, quantile in self._chosen.items():
            published = 100 * THEIRS if rule == PARD else None
            yield row(f"{rule}: chosen quantile", [100 * quantile], unit="%", published=published)
        for query, load, rule in product(QUERIES, self.loads, RULES):
            task = self._reported(query, rule, load)
            good, wasted = (np.median([one[place] for one in found[task]]) for place in (0, 1))
            note = f"{good:.1f} % in time; {wasted:.1f} % of the work in vain"
            name = f"{query}, load {load:g}, {rule}"
            if rule == REACTIVE:
                yield row(f"{name}: in time", [one.good for one in found[task]], unit="%", note=note)
                continue
            if rule == PARD:
                theirs = np.median(_gains(found, task._replace(quantile=THEIRS)))
                note += f"; with the quantile of the paper {theirs:+.1f} %"
            yield row(
                f"{name}: more goodput than Nexus",
                _gains(found, task),
                unit="%",
                published=LEAST if rule == PARD and load > 1 else None,
                note=note,
            )

    def series(self, found: Found) -> Iterator[Series]:
        for query, rule in product(QUERIES, RULES):
            own = [found[self._reported(query, rule, load)] for load in self.loads]
            yield curve(rule, self.loads, [[one.good for one in each] for each in own], panel=query)

    def configuration(self) -> dict[str, Any]:
        return {
            "accelerators": ACCELERATORS,
            "rates": {name: query_of(name).rate for name in QUERIES},
            "swing": SWING,
            "period": PERIOD,
            "hop_ms": HOP_MS,
            "quantiles": self.quantiles,
            "loads that they are chosen at": self.other_loads,
        }

    def details(self, found: Found) -> dict[str, Any]:  # noqa: ARG002 - what is not reported
        return {
            "in time where quantiles are chosen, %": {
                f"{task.query}, load {task.load:g}, {task.rule}, {task.quantile:g}": round(one.good, 2)
                for task, one in self._tried.items()
            }
        }

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the share in time against the load, for each query."""
        drawing, _ = panels_drawn(
            result,
            "Queries answered in time",
            list(QUERIES),
            ylabels=["%", ""],
            xlabel="load, relative to the plan",
        )
        return [drawing]


def chosen_quantiles(tried: Mapping[DropTask, Dropped]) -> dict[str, float]:
    """Return for each rule the quantile with which most queries were in time, over all that was tried."""
    sums: dict[str, dict[float, float]] = {}
    for task, one in tried.items():
        own = sums.setdefault(task.rule, {})
        own[task.quantile] = own.get(task.quantile, 0.0) + one.good
    return {rule: max(own, key=lambda quantile: own[quantile]) for rule, own in sums.items()}


def _gains(found: Found, task: DropTask) -> list[float]:
    """Of each seed, % more queries in time than by the reactive rule."""
    before = found[task._replace(rule=REACTIVE, quantile=NO_QUANTILE)]
    return [100 * (one.good / other.good - 1) for one, other in zip(found[task], before, strict=True)]


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
    # A thousandth of the SLO was the planner's own step when the stored figures were taken.
    fields = {"slo_ms": slo_ms, "stages": stages, "worst_case": True, "resolution_ms": slo_ms / 1000}
    one = Query.model_validate({**fields, "rate": 100.0})
    rate = 100.0 * PLANNED * ACCELERATORS / plan_query(one).accelerators
    return Query.model_validate({**fields, "rate": round(rate, 1)})
