"""Goodput of a query: the highest rate at which few enough queries are late or dropped."""

from __future__ import annotations

from tuner.cluster.goodput import TOLERANCE, bracket, highest
from tuner.cluster.pipelines.scenario import PipelineScenario
from tuner.cluster.pipelines.simulation import simulate_pipeline
from tuner.scheduling.cluster import QUANTILE

__all__ = ["at_rate", "keeps", "query_goodput"]

GROWTH = 1.1
"""The second rate tried is this much higher or lower than the first."""
FIRST = 0.85
"""The first, as a share of what the accelerators could serve by the plan."""


def query_goodput(scenario: PipelineScenario, *, near: float | None = None) -> float:
    """Return the highest rate, queries/s, at which 99 % of the queries are in time; 0 if there is none.

    Every rate is planned for, and is tried with the same seed. The scenario's own rate does not matter.

    Args:
        scenario: What serves the queries.
        near: A rate near the result; the search begins there.
    """
    plan, accelerators = scenario.plan, scenario.accelerators
    full = accelerators * scenario.query.rate / plan.accelerators
    between = bracket(
        lambda rate: keeps(at_rate(scenario, rate)), full, 1 - QUANTILE, near or FIRST * full, GROWTH
    )
    return highest(lambda rate: keeps(at_rate(scenario, rate)), between, TOLERANCE)


def at_rate(scenario: PipelineScenario, rate: float) -> PipelineScenario:
    """Return the same scenario with another rate, which is planned for and comes."""
    query = scenario.query.model_copy(update={"rate": rate})
    return scenario.model_copy(update={"query": query, "load": None})


def keeps(scenario: PipelineScenario) -> bool:
    """Simulate, and return whether enough queries were answered in time."""
    outcome = simulate_pipeline(scenario)
    return outcome.queries > 0 and outcome.bad_rate <= 1 - QUANTILE
