"""Finds the budgets of a query's stages with which some accelerators serve the most queries, by simulation.

The split of the planner (Nexus, section 6.2) needs the fewest accelerators if these can be shared in any
fractions and requests come evenly. On a few whole ones it may serve less than an even split does: a stage
with a short budget cannot share its accelerator, however little of one it needs, and the answers of a batch
are requests that come to the next stage all at once.

Every stage has a weight, and the SLO is divided along its longest path by the weights. From the planner's
split and from the even one on, the weight of one stage is raised or lowered, and what serves more queries in
time is kept; steps become smaller when none serves more. Splits are chosen with one seed, and compared with
another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tuner.cluster.pipelines.goodput import at_rate, keeps, query_goodput
from tuner.cluster.pipelines.scenario import PipelineScenario
from tuner.errors import InvalidInput
from tuner.planning.queries import Query, even_budgets, plan_query

__all__ = ["Budgets", "ChosenBudgets", "choose_budgets"]

STEPS = (2.0, 1.5, 1.25, 1.12)
"""Factors of a stage's weight."""
MORE = 1.005
"""Times as many queries as before must be served for a split to be better."""
QUERIES = 10_000
"""Of a simulation, about."""
WARM_UP = 10.0
"""SLOs that pass before queries count."""
MOST_TRIED = 200
"""Splits, from each of the two beginnings."""

Budgets = dict[str, float]
"""Of each stage, s."""


class ChosenBudgets(NamedTuple):
    """The budgets that serve the most queries, beside two that take no simulation; rates in queries/s."""

    budgets: Budgets
    rate: float
    planned: float
    """Of the planner's split."""
    even: float
    """Of the even split; 0 if it leaves a stage too little time."""

    def to_json(self) -> dict[str, Any]:
        """Return what ``tuner plan query --accelerators --json`` stores of it."""
        return {"rate": self.rate, "planned_rate": self.planned, "even_rate": self.even}


def choose_budgets(scenario: PipelineScenario) -> ChosenBudgets:
    """Return the budgets with which the scenario's accelerators serve the most queries.

    Args:
        scenario: Who serves; its rate, load, budgets and seconds do not matter.

    Raises:
        InvalidInput: No split meets the SLO.
    """
    trial = _trial(scenario)
    planned = {one.name: one.budget for one in trial.plan.stages}
    even = even_budgets(trial.query)
    found = [_climb(trial, begin) for begin in (planned, even)]
    _, best = max(found, key=lambda one: one[0])
    judge = trial.model_copy(update={"seed": trial.seed + 1})
    rates = [_goodput(judge, budgets) for budgets in (best, planned, even)]
    rate, own = max(zip(rates, (best, planned, even), strict=True), key=lambda one: one[0])
    return ChosenBudgets(own, rate, *rates[1:])


def _trial(scenario: PipelineScenario) -> PipelineScenario:
    """Return the scenario at the rate that its accelerators bear by the plan, for long enough."""
    rate = scenario.accelerators * scenario.query.rate / plan_query(scenario.query).accelerators
    warmup = WARM_UP * scenario.query.slo
    update = {"budgets_ms": None, "warmup_seconds": warmup, "seconds": QUERIES / rate}
    return at_rate(scenario.model_copy(update=update), rate)


def _climb(trial: PipelineScenario, budgets: Budgets) -> tuple[float, Budgets]:
    """Return the highest rate that is found from some budgets on, queries/s, and its budgets."""
    rate, tried = _goodput(trial, budgets), 1
    for step in STEPS:
        better = True
        while better and tried < MOST_TRIED:
            better = False
            for other in _neighbours(trial.query, budgets, step):
                tried += 1
                if _serves(trial, other, MORE * rate):
                    rate, budgets, better = _goodput(trial, other, near=MORE * rate), other, True
    return rate, budgets


def _neighbours(query: Query, budgets: Budgets, step: float) -> Iterator[Budgets]:
    for name in query.order:
        for factor in (step, 1 / step):
            weights = {**budgets, name: budgets[name] * factor}
            longest = query.through(weights)
            yield {one: weight * query.slo / longest[one] for one, weight in weights.items()}


def _with(trial: PipelineScenario, budgets: Budgets) -> PipelineScenario:
    return trial.model_copy(update={"budgets_ms": {name: 1e3 * one for name, one in budgets.items()}})


def _serves(trial: PipelineScenario, budgets: Budgets, rate: float) -> bool:
    """Whether a rate is served; not if a budget is too short for any batch."""
    try:
        return rate > 0 and keeps(at_rate(_with(trial, budgets), rate))
    except InvalidInput:
        return False


def _goodput(trial: PipelineScenario, budgets: Budgets, near: float | None = None) -> float:
    try:
        return query_goodput(_with(trial, budgets), near=near)
    except InvalidInput:
        return 0.0
