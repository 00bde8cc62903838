"""Nexus, Figure 17: what query analysis gains over an even split of the SLO.

A query of two stages on 8 accelerators: SSD detects, and Inception recognises what was detected, gamma times
for each query. Nexus' own profiles are not public. Inception is that of Symphony's Table 5; SSD is that of
Table 5, and a second one that takes the 47 ms for one image that Nexus says of its own (section 7.3.2). Which
part of these is for the batch was chosen by two other figures of that section: with 345 of 400 ms for SSD, 16
accelerators serve 534 queries/s.

Three splits are compared: the even one, the one that needs the fewest accelerators by the plan (in fractions;
a request waits as long as its batch executes, as Nexus counts), and the one that was found by simulation,
with other arrivals. All are simulated with the same packing and dispatch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tuner.cluster.pipelines import PipelineScenario, choose_budgets, query_goodput
from tuner.experiments.frame.drawing import panels_drawn
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.zoo import GTX_1080TI, Model, model
from tuner.planning.queries import Query, QueryPlan, even_budgets, plan_query
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["QueryAnalysis", "QueryTask", "SplitRates", "case_rate", "ssd_of"]

ACCELERATORS = 8
SLOS = (300, 350, 400, 450, 500)
"""ms"""
GAMMAS = (0.1, 1.0, 10.0)
LEAST, MOST = 13.0, 55.0
"""% that the paper gains."""
MANY = 10_000.0
"""Queries/s so high that every batch fills while the one before executes."""
ONE = 47.0
"""ms for a batch of one image, in the paper."""
CHOSEN = 0.5
"""Part of these that is for the batch, whatever its size."""
SHARES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
KNOWN = {
    "Table 5": model("SSDMobilenet", GTX_1080TI),
    "47 ms": Model("SSD", ONE * (1 - CHOSEN), ONE * CHOSEN),
}
"""The two profiles of SSD."""
ARRIVALS = {"Poisson": "poisson", "uniform": "gamma:3"}
"""Name -> as of a session; the gamma distribution with as much variance as the paper's uniform gaps."""
CASE_ACCELERATORS, CASE_RATE, CASE_FIRST, CASE_SLO = 16, 534.0, 345.0, 400
"""Of section 7.3.2; queries/s, ms, ms."""
OTHER_SEED = 1000
"""With which splits are chosen."""


class QueryTask(NamedTuple):
    """A query."""

    ssd: str
    """As in `KNOWN`."""
    slo: int
    """ms"""
    gamma: float
    arrival: str
    """As in `ARRIVALS`."""


class SplitRates(NamedTuple):
    """Queries/s on all accelerators: by the plan, and in simulation."""

    plan: float
    plan_even: float
    planned: float
    """Simulated with the split of the plan."""
    even: float
    chosen: float

    def gain(self, found: str) -> float:
        """How much more than the even split, %: ``plan``, ``planned`` or ``chosen``."""
        even = self.plan_even if found == "plan" else self.even
        return 100 * (getattr(self, found) / even - 1) if even else float("inf")


Found = Answers[QueryTask, SplitRates]


@experiment(
    name="nexus-fig17", title="Query analysis against an even split of the SLO", paper="Nexus", minutes=3
)
class QueryAnalysis(Experiment[QueryTask, SplitRates]):
    """Every profile, SLO, gamma and arrival process."""

    seconds = Scaled(60.0, quick=5.0)
    slos = Scaled(SLOS, quick=(400,))

    def prepare(self) -> None:
        tasks = self.tasks()
        self._chosen = dict(zip(tasks, self.run_all(self._choose, tasks, "splits"), strict=True))

    def _choose(self, task: QueryTask) -> dict[str, float]:
        return choose_budgets(self._scenario(task, OTHER_SEED)).budgets

    def _scenario(
        self, task: QueryTask, seed: int, budgets: dict[str, float] | None = None
    ) -> PipelineScenario:
        return PipelineScenario(
            query=_query(KNOWN[task.ssd], task.slo, task.gamma),
            policy="nexus",
            accelerators=ACCELERATORS,
            arrival=ARRIVALS[task.arrival],
            budgets_ms=None if budgets is None else {name: 1e3 * one for name, one in budgets.items()},
            seconds=self.seconds,
            warmup_seconds=2.0,
            seed=seed,
        )

    def tasks(self) -> list[QueryTask]:
        return [QueryTask(*one) for one in product(KNOWN, self.slos, GAMMAS, ARRIVALS)]

    def measure(self, task: QueryTask, seed: int) -> SplitRates:
        scenario = self._scenario(task, seed)
        plan = plan_query(scenario.query)
        planned = {stage.name: stage.budget for stage in plan.stages}
        rates = [
            query_goodput(self._scenario(task, seed, budgets))
            for budgets in (planned, even_budgets(scenario.query), self._chosen[task])
        ]
        return SplitRates(*_by_plan(plan), *rates)

    def rows(self, found: Found) -> Iterator[Row]:
        yield from _case()
        for share in SHARES:
            gains = [_plan_gain(ssd_of(share), slo, gamma) for slo, gamma in product(self.slos, GAMMAS)]
            note = "range over all SLOs and gammas, by the plan"
            yield row(f"47 ms, of which {share:.0%} for the batch: more", gains, unit="%", note=note)
        for task, answers in found.items():
            if task.arrival != "Poisson":
                continue
            name = f"{task.ssd}, SLO {task.slo} ms, gamma {task.gamma:g}"
            yield row(
                f"{name}: more", [one.gain("chosen") for one in answers], unit="%", note=_note(task, found)
            )
        for ssd, arrival in product(KNOWN, ARRIVALS):
            kind = [answers for task, answers in found.items() if (task.ssd, task.arrival) == (ssd, arrival)]
            for split, label in (("chosen", "split found by simulation"), ("planned", "split of the plan")):
                gains = [float(np.median([one.gain(split) for one in answers])) for answers in kind]
                name = f"{ssd}, {arrival} arrivals, {label}"
                yield row(f"{name}: least gain", [min(gains)], unit="%", published=LEAST)
                yield row(f"{name}: highest gain", [max(gains)], unit="%", published=MOST)

    def series(self, found: Found) -> Iterator[Series]:
        for ssd, gamma in product(KNOWN, GAMMAS):
            answers = [found[QueryTask(ssd, slo, gamma, "Poisson")] for slo in self.slos]
            values = [[one.gain("chosen") for one in each] for each in answers]
            yield curve(f"gamma {gamma:g}", self.slos, values, panel=ssd)

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the gain against the SLO, for both profiles."""
        drawing, axes = panels_drawn(
            result,
            "Query analysis over an even split",
            list(KNOWN),
            ylabels=["more queries/s, %", ""],
            xlabel="SLO, ms",
            ylim=(-2, MOST + 2),
        )
        for axis in axes:
            axis.axhspan(LEAST, MOST, color="0.93", zorder=0)
        return [drawing]


def _note(task: QueryTask, found: Found) -> str:
    """Say what the other splits and arrivals gain."""
    answers = found[task]
    rates = [np.median([getattr(one, name) for one in answers]) for name in ("chosen", "planned", "even")]
    uniform = np.median([one.gain("chosen") for one in found[task._replace(arrival="uniform")]])
    gains = [np.median([one.gain(name) for one in answers]) for name in ("planned", "plan")]
    return (
        f"{rates[0]:.0f}, with the plan's split {rates[1]:.0f}, with an even one {rates[2]:.0f} queries/s; "
        f"the plan's split gains {gains[0]:.1f} %, by the plan itself {gains[1]:.1f} %; "
        f"uniform arrivals: {uniform:.1f} %; published: {LEAST:g} to {MOST:g} %"
    )


def _case() -> Iterator[Row]:
    """Return the two figures by which the second profile was chosen."""
    plan = plan_query(_query(KNOWN["47 ms"], CASE_SLO, 1.0))
    rate = case_rate(KNOWN["47 ms"])
    note = "chosen by this: 47 ms for one image, and Inception once for each"
    yield row(
        "47 ms, SLO 400 ms, 16 accelerators: by the plan",
        [rate],
        unit="queries/s",
        published=CASE_RATE,
        note=note,
    )
    first, second = (2e3 * stage.latency for stage in plan.stages)
    note = f"{first:.0f} to {CASE_SLO - second:.0f} ms are the same split"
    budget = 1e3 * plan.stages[0].budget
    yield row("47 ms, SLO 400 ms: for SSD", [budget], unit="ms", published=CASE_FIRST, note=note)


def ssd_of(share: float) -> Model:
    """Return an SSD that takes 47 ms for one image, of which a share is for the batch."""
    return Model("SSD", ONE * (1 - share), ONE * share)


def case_rate(ssd: Model) -> float:
    """Return the queries/s of 16 accelerators by the plan, with Inception once for each of 400 ms."""
    return CASE_ACCELERATORS * MANY / plan_query(_query(ssd, CASE_SLO, 1.0)).accelerators


def _by_plan(plan: QueryPlan) -> tuple[float, float]:
    """Return the queries/s of all accelerators by the plan, and by the even split."""
    even = 0.0 if plan.even_split is None else ACCELERATORS * MANY / plan.even_split
    return ACCELERATORS * MANY / plan.accelerators, even


def _plan_gain(ssd: Model, slo: int, gamma: float) -> float:
    rate, even = _by_plan(plan_query(_query(ssd, slo, gamma)))
    return 100 * (rate / even - 1)


def _query(first: Model, slo: float, gamma: float) -> Query:
    second = model("InceptionV3", GTX_1080TI)
    stages: list[dict[str, Any]] = [
        {
            "name": "detect",
            "alpha_ms": first.alpha_ms,
            "beta_ms": first.beta_ms,
            "next": [{"stage": "recognise", "gamma": gamma}],
        },
        {"name": "recognise", "alpha_ms": second.alpha_ms, "beta_ms": second.beta_ms},
    ]
    return Query.model_validate({"slo_ms": slo, "rate": MANY, "worst_case": True, "stages": stages})
