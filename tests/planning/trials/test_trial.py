"""The choice of a pool by trials, with formulas in place of simulations where they do."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.cluster.goodput import Goodput
from tuner.cluster.outcome import Outcome
from tuner.cluster.pool_trial import PoolTrial
from tuner.cluster.scenario import Scenario
from tuner.cluster.scenario.network import Network
from tuner.errors import InvalidInput
from tuner.planning.pools.ceiling import ceilings, kept_mass
from tuner.planning.pools.planner import Order, make_order, plan_order
from tuner.planning.trials.candidate import Candidates, kept_sizes, rough_ceilings
from tuner.planning.trials.plan import plan_by_trials
from tuner.planning.trials.trial import FIRST, LAST, SLACK, Evaluate, run_trials
from tuner.workload.sizes import SizeDistribution, parse_sizes


def make(budget: float, **session: object) -> Scenario:
    """Return a scenario over a small catalogue."""
    types = [
        {"name": "fast", "price": 1.0, "max_count": 4, "profile": {"m": {"alpha_ms": 0.02, "beta_ms": 2}}},
        {"name": "slow", "price": 0.2, "max_count": 9, "profile": {"m": {"alpha_ms": 0.09, "beta_ms": 1}}},
        {"name": "late", "price": 0.01, "max_count": 9, "profile": {"m": {"alpha_ms": 9.0, "beta_ms": 99}}},
    ]
    fields = {"name": "s", "model": "m", "slo_ms": 25, "sizes": "lognormal:4.5,0.6", **session}
    return Scenario.model_validate({"budget": budget, "catalogue": types, "sessions": [fields]})


def ideal(order: Order, factor: dict[tuple[int, ...], float]) -> tuple[list[tuple[int, ...]], Evaluate]:
    """Return the pools that were asked for, and an evaluation that gives a factor of the ceiling."""
    asked: list[tuple[int, ...]] = []

    def evaluate(pool: tuple[int, ...], requests: int, at_least: float) -> float:
        asked.append(pool)
        session = order.session
        pools = np.array([pool])
        most = ceilings(pools, order.offers.latency, session.slo, order.sizes.probability, session.quantile)
        rate = float(most[0]) * factor.get(pool, 0.5)
        return rate if rate >= at_least else 0.0

    return asked, evaluate


def test_the_quantile_leaves_out_the_largest_sizes() -> None:
    """What is left is just enough."""
    sizes = parse_sizes("gaussian:300,120")

    kept = kept_sizes(sizes, 0.99)

    assert kept.largest < 600
    assert sizes.probability[: kept.largest + 1].sum() >= 0.99
    assert sizes.probability[: kept.largest].sum() < 0.99


def test_a_pool_of_one_type_is_never_missed() -> None:
    """Where mixed pools do not reach their ceilings, the plan is the best pool of one type."""
    order = make_order(make(3.0))
    asked, evaluate = ideal(order, {(3, 0, 0): 0.95})

    plan = plan_by_trials(order, evaluate)

    assert list(plan.chosen.counts.values()) == [3, 0, 0]
    assert plan.gain == 1
    assert "Mixed pools gain nothing here: 3 x fast" in plan.why[-1]
    assert all(pool[2] == 0 for pool in asked)  # what serves no size that comes is not rented


def test_a_pool_that_serves_nothing_is_no_plan() -> None:
    """The bounds do not know the network and the noise; where every simulation fails, nothing is advised."""
    with pytest.raises(InvalidInput, match=r"session s: no pool within the budget"):
        plan_by_trials(make_order(make(3.0)), lambda *_: 0.0)


def test_the_best_of_many_is_found_with_few_trials() -> None:
    """No pool is simulated whose ceiling is below what another serves."""
    order = make_order(make(4.0))
    _, evaluate = ideal(order, {(3, 5, 0): 0.99})

    plan = plan_by_trials(order, evaluate)

    assert list(plan.chosen.counts.values()) == [3, 5, 0]
    assert plan.tried < 6
    assert plan.chosen.simulated == pytest.approx(0.99 * plan.chosen.ceiling)


def test_a_ceiling_goes_by_all_requests_and_not_by_those_that_must_be_in_time() -> None:
    """Half of the requests may be late: the throughput of all is about twice that of the others."""
    order = make_order(make(4.0, quantile=0.5))
    _, evaluate = ideal(order, {(4, 0, 0): 0.95, (3, 5, 0): 0.99})

    plan = plan_by_trials(order, evaluate)

    assert list(plan.chosen.counts.values()) == [3, 5, 0]


def test_a_bound_goes_by_all_requests_too() -> None:
    """Four instances that take 4 ms for each of the 60 % that must be in time serve 1,667 requests/s."""
    table = np.zeros(1001)
    table[[100, 900]] = 2 / 3, 1 / 3
    sizes = SizeDistribution(name="two", probability=table)
    order = make_order(make(4.0, quantile=0.6))._replace(sizes=sizes)
    _, evaluate = ideal(order, {(4, 0, 0): 0.95})

    plan = plan_by_trials(order, evaluate)

    assert list(plan.chosen.counts.values()) == [4, 0, 0]
    assert plan.chosen.bound == pytest.approx(4 / 0.004 / 0.6)
    assert plan.chosen.bound == pytest.approx(plan.chosen.ceiling)


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95, 0.99])
def test_the_rough_ceilings_are_near_the_exact_ones(quantile: float) -> None:
    """Whatever the quantile leaves out; what they are below them, the trials allow for."""
    order = make_order(make(4.0, quantile=quantile))
    pools, latency, slo = np.array([[4, 0, 0], [3, 5, 0], [1, 9, 0]]), order.offers.latency, order.session.slo

    exact = ceilings(pools, latency, slo, order.sizes.probability, quantile)
    rough = rough_ceilings(pools, latency, slo, kept_mass(order.sizes.probability, quantile))

    assert (exact <= rough * SLACK).all()
    np.testing.assert_allclose(rough, exact, rtol=0.05)


def test_luck_of_the_first_round_does_not_count() -> None:
    """The second round has other requests, and decides."""
    pools = np.array([[2, 0], [0, 2]])
    candidates = Candidates(pools, np.array([9.0, 9.0]), np.array([True, True]), 2)
    rates: dict[tuple[int, tuple[int, ...]], float] = {
        (1000, (2, 0)): 8.0,
        (1000, (0, 2)): 8.5,
        (10_000, (2, 0)): 8.0,
        (10_000, (0, 2)): 7.0,
    }

    found = run_trials(candidates, lambda pool, requests, at_least: rates[requests, pool])

    assert list(found.finalists) == [(2, 0), (0, 2)]


def test_the_rounds_have_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the first are not the beginning of those of the second, which are those of a goodput."""
    order = make_order(scenario := make(3.0))
    gaps: list[np.ndarray] = []

    def goodput(tried: Scenario, **_: object) -> Goodput:
        gaps.append(np.diff(tried.make_requests().next_chunk().time))
        return Goodput(
            rate=0.0,
            multiplier=0.0,
            outcome=Outcome(sessions=(), utilisation=(), seconds=1.0),
            evaluations=(),
        )

    monkeypatch.setattr("tuner.cluster.pool_trial.goodput", goodput)
    trial = PoolTrial(scenario, order.types)
    trial((1, 0, 0), FIRST, 0.0)
    trial((1, 0, 0), LAST, 0.0)
    trial.goodput((1, 0, 0))

    few, many, shown = gaps
    assert np.median(np.abs(few / many[: few.size] - 1)) > 0.1
    assert (many == shown).all()


def test_under_drs_every_pool_has_the_threshold_that_serves_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the file has one; what serves less than is asked for is 0, as under every policy."""
    scenario = make(3.0).model_copy(update={"policy": "drs"})
    types = make_order(scenario).types

    def goodput(tried: Scenario, **_: object) -> Goodput:
        return Goodput(
            rate=1000.0 - abs(tried.options.get("threshold", 0) - 200),
            multiplier=1.0,
            outcome=Outcome(sessions=(), utilisation=(), seconds=1.0),
            evaluations=(),
        )

    monkeypatch.setattr("tuner.cluster.pool_trial.goodput", goodput)
    monkeypatch.setattr("tuner.cluster.threshold.goodput", goodput)
    trial = PoolTrial(scenario, types)
    given = PoolTrial(scenario.model_copy(update={"options": {"threshold": 50}}), types)

    assert trial((1, 1, 0), FIRST, 985.0) >= 990
    assert trial((1, 1, 0), FIRST, 1001.0) == 0
    assert given((1, 1, 0), FIRST, 0.0) == 850


def test_the_answers_take_their_way_in_the_simulations() -> None:
    """A pool whose answers come too late over the network serves nothing."""
    near, far = make(3.0), make(3.0).model_copy(update={"network": Network(response_ms=24)})
    types = make_order(near).types

    assert PoolTrial(near, types).goodput((1, 0, 0)) > 0
    assert PoolTrial(far, types).goodput((1, 0, 0)) == 0


@pytest.mark.compiled
def test_a_simulated_plan_serves_at_least_what_the_papers_serves() -> None:
    """On this catalogue the nearest of the highest bounds is a worse pool."""
    scenario = make(2.3)
    order = make_order(scenario)
    trial = PoolTrial(scenario, order.types)

    plan = plan_by_trials(order, trial)

    paper = tuple(plan_order(order).chosen.counts.values())
    assert plan.chosen.simulated is not None
    assert plan.chosen.simulated >= 0.99 * trial.goodput(paper)
    assert plan.chosen.simulated >= plan.homogeneous.rate
    assert plan.chosen.simulated <= plan.chosen.ceiling * 1.01
