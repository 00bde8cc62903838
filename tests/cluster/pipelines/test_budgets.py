"""Budgets of the stages that serve most, by simulation."""

from __future__ import annotations

import pytest

from tuner.cluster.pipelines import PipelineScenario, choose_budgets, query_goodput, simulate_pipeline

pytestmark = [pytest.mark.kernels, pytest.mark.compiled]  # it simulates much

QUERY = {
    "slo_ms": 300.0,
    "rate": 100.0,
    "worst_case": True,
    "stages": [
        {"name": "detect", "alpha_ms": 20.0, "beta_ms": 20.0, "next": [{"stage": "read", "gamma": 0.3}]},
        {"name": "read", "alpha_ms": 2.0, "beta_ms": 8.0},
    ],
}


def make_scenario(**given: object) -> PipelineScenario:
    """The query on four accelerators."""
    return PipelineScenario.model_validate({"query": QUERY, "policy": "nexus", "accelerators": 4, **given})


def test_the_goodput_is_the_highest_rate_that_is_served() -> None:
    """It is served, and a few percent more is not, whatever rate the scenario has."""
    found = query_goodput(make_scenario())

    bad = []
    for factor in (1.0, 1.03):
        query = {**QUERY, "rate": factor * found}
        bad.append(simulate_pipeline(make_scenario(query=query)).bad_rate)
    assert bad[0] <= 0.01 < bad[1]
    assert query_goodput(make_scenario(query={**QUERY, "rate": 10.0}, load=5.0)) == pytest.approx(
        found, rel=0.02
    )


def test_chosen_budgets_serve_no_less_than_those_of_the_plan_or_even_ones() -> None:
    """Also with other arrivals; the budgets are within the SLO."""
    found = choose_budgets(make_scenario())

    assert sum(found.budgets.values()) <= 0.3 * (1 + 1e-9)
    assert found.rate >= max(found.planned, found.even) > 0
    chosen = {name: 1e3 * budget for name, budget in found.budgets.items()}
    even = {"detect": 150.0, "read": 150.0}
    rates = [query_goodput(make_scenario(budgets_ms=each, seed=7, seconds=60.0)) for each in (chosen, even)]
    assert rates[0] >= 0.98 * rates[1]


def test_a_split_that_only_some_budgets_meet_is_found() -> None:
    """The even one leaves the first stage too little time for any batch."""
    found = choose_budgets(make_scenario(query={**QUERY, "slo_ms": 120.0}))

    assert found.even == 0 < found.rate
