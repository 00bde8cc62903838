"""Plans: what they hold, what they say, and what makes one impossible."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tuner.cluster.scenario import Scenario, Session
from tuner.errors import InvalidInput
from tuner.planning.pools.catalogue import make_offers
from tuner.planning.pools.paper import paper_catalogue
from tuner.planning.pools.planner import plan_instances, plan_scenario
from tuner.workload.sizes import SizeMonitor, parse_sizes

GPU = {"name": "gpu", "price": 1.0, "max_count": 3, "profile": {"m": {"alpha_ms": 0.01, "beta_ms": 5}}}
CPU = {"name": "cpu", "price": 0.1, "max_count": 9, "profile": {"m": {"alpha_ms": 0.1, "beta_ms": 0}}}


def scenario(*types: Any, slo_ms: float = 20.0, budget: float = 2.5, sizes: str = "paper") -> Scenario:
    return Scenario(
        catalogue=list(types) or "paper",  # type: ignore[arg-type]
        budget=budget,
        sessions=[{"name": "s", "model": "m" if types else "rm2", "slo_ms": slo_ms, "sizes": sizes}],  # type: ignore[arg-type]
    )


def test_a_plan_holds_the_twenty_highest_bounds_with_the_chosen_pool() -> None:
    """Best first, all within the budget; distances for ten; plain JSON."""
    plan = plan_scenario(scenario(slo_ms=350.0))

    bounds = [pool.bound for pool in plan.top]
    assert len(plan.top) == 20
    assert bounds == sorted(bounds, reverse=True)
    assert all(pool.cost <= 2.5 for pool in plan.top)
    assert [pool.distance is not None for pool in plan.top] == [True] * 10 + [False] * 10
    assert plan.chosen in plan.top[:10]
    written = json.loads(json.dumps(plan.to_json(), allow_nan=False))
    assert written["chosen"]["instances"] == [
        {"type": "g4dn.xlarge", "count": 1},
        {"type": "r5n.large", "count": 13},
    ]
    assert written["homogeneous"]["instances"] == [{"type": "g4dn.xlarge", "count": 4}]
    assert written["pools"] == 331
    assert written["gain"] == pytest.approx(2.0, abs=0.01)


def test_a_plan_says_why() -> None:
    """What was compared, what each type is good for, the rule of the choice, the bottleneck, the gain."""
    agreed = " ".join(plan_scenario(scenario(slo_ms=350.0)).why)
    nearest = " ".join(
        plan_scenario(
            Scenario(budget=2.5, sessions=[Session(name="s", model="mtwnd", slo_ms=25, sizes="paper")])  # type: ignore[arg-type]
        ).why
    )

    assert "331 pools cost at most 2.5 $/h" in agreed
    assert "r5n.large meets 350 ms up to 863 items, 98.3% of the requests." in agreed
    assert "have the same base instances, so the highest is taken" in agreed
    assert "2.00 times that of 4 x g4dn.xlarge" in agreed
    assert "summed squared distance 38" in nearest


def test_the_only_pool_is_chosen() -> None:
    """With one instance of one type there is no choice."""
    plan = plan_scenario(scenario(GPU, budget=1.5))

    assert plan.chosen.counts == {"gpu": 1}
    assert plan.why[1] == "It is the only pool."
    assert plan.gain == pytest.approx(1 / 1.5)


def test_a_pool_of_all_that_there_is_of_a_type_is_not_scaled_up() -> None:
    """Three GPU for 3 $/h are all that can be rented of them, whatever else the budget buys."""
    plan = plan_scenario(scenario(GPU, CPU, budget=4.0))

    assert plan.homogeneous.scaled_rate == plan.homogeneous.rate
    assert plan.why[-1].endswith(" times that of 3 x gpu, all that there are of it.")


def test_useless_types_are_named() -> None:
    """A type that is too slow for the smallest request is not rented."""
    slow = {**CPU, "profile": {"m": {"alpha_ms": 0, "beta_ms": 90}}}

    plan = plan_scenario(scenario(GPU, slow))

    assert plan.chosen.counts == {"gpu": 2, "cpu": 0}
    assert "cpu meets 20 ms at no size that comes, and is of no use." in plan.why
    assert "No auxiliary instances are worth their price." in plan.why
    assert plan.why[-1] == "Mixed pools gain nothing here: 2 x gpu is the best pool of one type, too."


def test_several_base_types_may_serve_together() -> None:
    """Where both meet the SLO at the largest size, both are base types."""
    plan = plan_scenario(scenario(GPU, CPU, slo_ms=200.0))

    assert plan.terms.base.tolist() == [True, True]
    assert "(gpu or cpu)" in plan.why[0]


def test_a_change_of_sizes_changes_the_plan() -> None:
    """What a monitor saw replaces the session's sizes."""
    session = Session(name="s", model="rm2", slo_ms=350, sizes="paper")
    monitor = SizeMonitor()
    monitor.observe(parse_sizes("gaussian:900,60").sample(np.random.default_rng(1), 20_000))
    seen = monitor.distribution()

    before = plan_scenario(Scenario(budget=2.5, sessions=[session]))  # type: ignore[arg-type]
    after = plan_instances(session, seen, make_offers(paper_catalogue(), "rm2", seen), 2.5)

    assert after.sizes.name == "last 10,000 requests"
    assert after.chosen.counts != before.chosen.counts


def test_a_model_that_no_type_serves_in_time_is_refused() -> None:
    """It says which size fails, where, and up to where each type meet the SLO."""
    with pytest.raises(InvalidInput) as error:
        plan_scenario(scenario(GPU, CPU, slo_ms=14.0))

    assert str(error.value) == (
        "session s: no instance type meets slo_ms 14 at the largest size, 1000 items: "
        "gpu needs 15 ms and meets it up to 900 items; cpu needs 100 ms and meets it up to 140 items; "
        "raise slo_ms, or add a faster "
        "instance type"
    )


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        (0.05, "buys no instance; the cheapest costs 0.1"),
        (0.1, "buys no instance that meets slo_ms"),
        (0.5, "buys no instance that meets slo_ms"),
    ],
)
def test_a_budget_that_buys_nothing_is_refused(budget: float, says: str) -> None:
    """It says what is needed at least."""
    with pytest.raises(InvalidInput, match=says) as error:
        plan_scenario(scenario(GPU, CPU, budget=budget))

    assert "gpu, which costs 1 $/h" in str(error.value)


def test_a_budget_of_exactly_one_instance_buys_it() -> None:
    """Rounding does not matter."""
    assert plan_scenario(scenario(GPU, CPU, budget=1.0)).chosen.counts == {"gpu": 1, "cpu": 0}
    assert plan_scenario(scenario({**GPU, "price": 0.1 + 0.2}, budget=0.3)).chosen.counts == {"gpu": 1}


def test_of_several_base_types_a_budget_must_buy_the_cheapest() -> None:
    """Whichever comes first."""
    for types in ((GPU, CPU), (CPU, GPU)):
        with pytest.raises(InvalidInput, match=r"at least one cpu, which costs 0\.1 \$/h"):
            plan_scenario(scenario(*types, slo_ms=200.0, budget=0.05))


def test_each_pool_says_what_limits_it() -> None:
    """Up to four auxiliary instances are always busy; from the fifth on the bound is what the base allows."""
    plan = plan_scenario(scenario(GPU, {**CPU, "price": 0.01}, budget=1.5))

    limits = {pool.counts["cpu"]: pool.bottleneck for pool in plan.top}
    bound = {pool.counts["cpu"]: pool.bound for pool in plan.top}
    assert [limits[count] for count in range(10)] == ["base"] + ["auxiliary"] * 4 + ["base"] * 5
    assert bound[4] < bound[5] == bound[9]


def test_a_plan_needs_a_budget_and_one_session() -> None:
    """The message names what is missing."""
    session = {"name": "s", "model": "rm2", "slo_ms": 350, "sizes": "paper"}
    with pytest.raises(InvalidInput, match="budget: is missing"):
        plan_scenario(Scenario(sessions=[session]))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="for one session, but got s, t"):
        plan_scenario(Scenario(budget=1, sessions=[session, {**session, "name": "t"}]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"budget": 0},
        {"budget": -1.0},
        {"policy": "fifo"},
        {"catalogue": "missing.yaml"},
        {"catalogue": []},
        {"catalogue": [CPU, CPU]},
        {"sessions": []},
        {"requests": 0},
        {"instances": [{"type": "cpu", "count": -1}]},
        {"budgets": 3},
    ],
)
def test_mistakes_in_a_scenario_are_refused(change: dict[str, Any]) -> None:
    """By the field they are in."""
    good = {"budget": 2.5, "sessions": [{"name": "s", "model": "rm2", "slo_ms": 350, "sizes": "paper"}]}
    Scenario.model_validate(good)

    with pytest.raises(ValidationError) as error:
        Scenario.model_validate({**good, **change})

    assert error.value.errors()[0]["loc"][0] == next(iter(change))


@pytest.mark.parametrize(
    "change", [{"slo_ms": 0}, {"quantile": 1.0}, {"sizes": "zipf:2"}, {"sizes": "trace:no"}]
)
def test_mistakes_in_a_session_are_refused(change: dict[str, Any]) -> None:
    """By the field they are in."""
    session = {"name": "s", "model": "rm2", "slo_ms": 350, "sizes": "paper"}

    with pytest.raises(ValidationError) as error:
        Scenario.model_validate({"sessions": [{**session, **change}]})

    assert error.value.errors()[0]["loc"][-1] == next(iter(change))
