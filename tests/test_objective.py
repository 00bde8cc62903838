"""The one place where costs are defined."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import measurement
from tuner.control.decide.validation import unusable
from tuner.errors import InvalidInput
from tuner.measurement import Measurement
from tuner.objective import BadRateObjective, Objective, Slo, parse_slo, unsaturated

SLO = Slo(statistic="p95", latency=0.030)


def test_latency_cost_is_the_ratio_to_the_slo() -> None:
    """1 is just at the SLO."""
    assert Objective(slo=SLO).cost(measurement(0.015)) == pytest.approx(0.5)


def test_cost_of_overload_grows_with_the_logarithm() -> None:
    """Beyond ten times the SLO the number says how long the window was, not how bad the configuration is."""
    objective = Objective(slo=SLO)

    assert objective.cost(measurement(0.300)) == pytest.approx(10)
    assert objective.cost(measurement(3.000)) == pytest.approx(10 * (1 + math.log(10)))


@pytest.mark.parametrize("ratio", [0.5, 10.0, 12.0, 300.0])
def test_the_latency_is_read_off_its_cost(ratio: float) -> None:
    """Also in overload: so a prediction of the cost is told as one of the latency."""
    assert unsaturated(Objective(slo=SLO).cost(measurement(ratio * 0.030))) == pytest.approx(ratio)


def test_cpu_cost_is_the_share_of_the_cores_while_the_slo_is_kept() -> None:
    """Half of two cores is 0.5; latency within the SLO, or just at it, does not matter."""
    objective = Objective(slo=SLO, goal="cpu", cores=2)

    assert objective.cost(measurement(0.010, cpu=1.0)) == pytest.approx(0.5)
    assert objective.cost(measurement(0.029, cpu=1.0)) == pytest.approx(0.5)
    assert objective.cost(measurement(0.030, cpu=1.0)) == pytest.approx(0.5)


@pytest.mark.parametrize(("goal", "least"), [("cpu", 0.0005), ("gpu", 0.001)])
def test_use_that_is_too_little_to_be_measured(goal: str, least: float) -> None:
    """It costs as the least that can be, a tick of the CPU in ten seconds: not infinitely less than that."""
    objective = Objective(slo=SLO, goal=goal, cores=2)
    window = replace(measurement(0.010), start=0.0, end=10.0)

    assert objective.cost(replace(window, cpu=0.0, gpu=0.0)) == pytest.approx(least)
    assert objective.cost(replace(window, cpu=0.002, gpu=0.002)) == pytest.approx(max(0.001, 2 * least))
    assert math.isnan(objective.cost(replace(window, cpu=math.nan, gpu=math.nan)))


def test_breaking_the_slo_costs_more_than_any_use_of_resources() -> None:
    """A configuration that breaks the SLO never wins by being frugal."""
    objective = Objective(slo=SLO, goal="cpu", cores=2)

    assert objective.cost(measurement(0.0301, cpu=0.01)) > objective.cost(measurement(0.0299, cpu=2.0))
    assert objective.cost(measurement(0.0299, cpu=9.0)) == 1.0, "of more cores than were told"


def test_failures_break_the_slo() -> None:
    """A fast server that fails requests has not kept its promise."""
    objective = Objective(slo=SLO)

    assert objective.kept(measurement(0.010))
    assert not objective.kept(measurement(0.010, failures=1))
    assert not objective.kept(measurement(math.nan))


@pytest.mark.parametrize("goal", ["latency", "cpu", "gpu"])
def test_refusing_requests_is_never_cheap(goal: str) -> None:
    """A server that refuses most requests is idle, and fast for the others; its failures cost more than that.

    A few that fail whatever the configuration, such as bad requests, hide no difference.
    """
    objective = Objective(slo=SLO, goal=goal, cores=2)

    def cost(p95: float, *, failures: int = 0, used: float = 0.5) -> float:
        return objective.cost(replace(measurement(p95, failures=failures, cpu=2 * used), gpu=used))

    assert cost(0.001, failures=4000, used=0.05) > cost(0.029, used=0.95)
    assert cost(0.001, failures=4000, used=0.05) == pytest.approx(0.8 * 2 + 0.2 * cost(0.001, used=0.05))
    assert cost(0.010, failures=1, used=0.2) == pytest.approx(cost(0.010, used=0.2), abs=0.002)
    assert cost(0.300, failures=1) == pytest.approx(cost(0.300))


def test_reward_is_the_negated_cost() -> None:
    """Reinforcement learning libraries maximise."""
    assert Objective(slo=SLO).reward(measurement(0.015)) == pytest.approx(-0.5)


def test_slo_is_read_as_people_write_it() -> None:
    """Statistic, equals sign, duration."""
    assert parse_slo("p95=30ms") == SLO
    assert str(SLO) == "p95 <= 30ms"


@pytest.mark.parametrize(
    "text", ["", "30ms", "p95", "p95=", "p95=30", "p95=-1ms", "p95=0ms", "p77=3ms", "p95=2h", "p95=x"]
)
def test_nonsense_slos_are_refused(text: str) -> None:
    """One clear error that names the setting."""
    with pytest.raises(InvalidInput, match="--slo"):
        parse_slo(text)


def test_unknown_goals_are_refused() -> None:
    """The error lists what there is."""
    with pytest.raises(InvalidInput, match="latency, strict, cpu, gpu"):
        Objective(slo=SLO, goal="speed")


def window(good: int, bad: int, gpu: float = 0.4, p95: float = 0.015) -> Measurement:
    """A window of a scheduler."""
    return replace(measurement(p95), requests=good, failures=bad, gpu=gpu)


def test_a_kept_bad_rate_costs_what_is_used() -> None:
    """Up to one request in a hundred may be late or dropped."""
    objective = BadRateObjective(slo=SLO, goal="gpu")

    assert objective.kept(window(99, 1))
    assert objective.cost(window(99, 1)) == pytest.approx(0.4)
    assert BadRateObjective(slo=SLO).cost(window(99, 1)) == pytest.approx(0.5)
    assert BadRateObjective(slo=SLO).cost(window(99, 1, p95=0.090)) == 1.0, "below every broken bad rate"


def test_a_broken_bad_rate_costs_more_than_anything_else() -> None:
    """It grows with the bad rate, above ten times the allowed one with the logarithm."""
    objective = BadRateObjective(slo=SLO, goal="gpu")

    assert not objective.kept(window(98, 2))
    assert objective.cost(window(98, 2, gpu=0.1)) == pytest.approx(3)
    assert objective.cost(window(99, 1, gpu=1.0)) == 1
    assert objective.cost(window(0, 100)) == pytest.approx(1 + 10 * (1 + math.log(10)))
    assert BadRateObjective(slo=SLO, goal="gpu", allowed=0.05).kept(window(98, 2))


def test_bad_rate_of_nothing() -> None:
    """Nobody asked: nothing is known. A share that makes no sense is refused."""
    assert math.isnan(BadRateObjective(slo=SLO).cost(window(0, 0)))
    with pytest.raises(InvalidInput, match="allowed"):
        BadRateObjective(slo=SLO, allowed=1.0)


def test_strict_costs_one_more_when_the_slo_is_broken() -> None:
    """A configuration that breaks the SLO now and then loses against a slower one that never does."""
    strict = Objective(slo=SLO, goal="strict")
    plain = Objective(slo=SLO)
    steady = [measurement(0.029)] * 4
    risky = [measurement(0.020)] * 3 + [measurement(0.035)]

    assert strict.cost(measurement(0.015)) == pytest.approx(0.5)
    assert strict.cost(measurement(0.030)) == pytest.approx(1.0)
    assert strict.cost(measurement(0.036)) == pytest.approx(2.2)
    assert strict.cost(measurement(0.010, failures=1)) == pytest.approx(2.0)
    assert math.isnan(strict.cost(measurement(math.nan)))
    assert sum(map(plain.cost, steady)) > sum(map(plain.cost, risky))
    assert sum(map(strict.cost, steady)) < sum(map(strict.cost, risky))


@pytest.mark.parametrize(("goal", "least"), [("latency", 1.0), ("strict", 2.0), ("cpu", 2.0), ("gpu", 2.0)])
def test_the_least_cost_of_a_broken_window(goal: str, least: float) -> None:
    """No window that breaks the SLO costs less, and one that hardly does costs no more."""
    objective = Objective(slo=SLO, goal=goal)

    assert objective.broken == least
    assert objective.cost(measurement(0.030000001)) == pytest.approx(least, rel=1e-6)


def changed(seconds: float, affected: float, **others: Any) -> Measurement:
    """A window of 1,000 requests after a change."""
    return replace(measurement(0.015), change_seconds=seconds, change_requests=affected, **others)


def test_a_change_costs_seconds_times_affected_requests_per_request_over_the_slo() -> None:
    """2 s for 30 of 1,000 requests are 60 ms for each of them, twice the SLO."""
    objective = Objective(slo=SLO, change_cost=1.0)

    assert objective.change(changed(2.0, 30.0)) == pytest.approx(2.0)
    assert objective.cost(changed(2.0, 30.0)) == pytest.approx(0.5 + 2.0)
    assert objective.cost(measurement(0.015)) == pytest.approx(0.5)
    assert replace(objective, change_cost=0.5).cost(changed(2.0, 30.0)) == pytest.approx(0.5 + 1.0)


def test_changes_are_free_unless_wanted() -> None:
    """What was stored and learned without them stays as it is."""
    assert Objective(slo=SLO).cost(changed(2.0, 30.0)) == Objective(slo=SLO).cost(measurement(0.015))


def test_the_cost_of_a_change_has_a_unit_that_is_no_matter() -> None:
    """Twice the window at the same load: half the cost. Every goal has the same."""
    objective = Objective(slo=SLO, goal="cpu", cores=2, change_cost=1.0)
    bad_rate = BadRateObjective(slo=SLO, goal="gpu", change_cost=1.0)

    assert objective.change(changed(2.0, 15.0, requests=2000)) == pytest.approx(0.5)
    assert objective.cost(changed(2.0, 15.0)) == pytest.approx(0.5 + 1.0)
    assert bad_rate.cost(changed(2.0, 15.0, gpu=0.4)) == pytest.approx(0.4 + 1.0)


def test_a_long_change_does_not_drown_everything() -> None:
    """Above ten times the SLO its cost grows with the logarithm, too; nobody there, nobody waits."""
    objective = Objective(slo=SLO, change_cost=1.0)

    assert objective.change(changed(30.0, 1000.0)) == pytest.approx(10 * (1 + math.log(100)))
    assert objective.change(changed(30.0, 1000.0, requests=0)) == 0.0


def test_a_weight_below_zero_is_refused() -> None:
    """The error names the option."""
    with pytest.raises(InvalidInput, match="--change-cost"):
        Objective(slo=SLO, change_cost=-1.0)


def test_objectives_are_told_in_words() -> None:
    """With the SLO, and the weight of changes if there is one."""
    assert str(Objective(slo=SLO)) == "least p95 latency with p95 <= 30ms"
    assert str(Objective(slo=SLO, goal="strict")) == "least p95 latency, strictly p95 <= 30ms"
    assert str(Objective(slo=SLO, goal="cpu", change_cost=1)) == (
        "least CPU with p95 <= 30ms, changes at 1 times their cost"
    )


@pytest.mark.parametrize("goal", ["latency", "strict", "cpu"])
def test_a_window_that_ends_before_the_slo_shows_nothing(goal: str) -> None:
    """Nothing was answered in 6 s: whether it would have been in 8 s nobody knows; in 5 s it was not."""
    window = replace(measurement(6.0), cut_off=6.0)

    for slo, unknown in ((8.0, True), (5.0, False)):
        objective = Objective(slo=Slo(statistic="p95", latency=slo), goal=goal, cores=2)
        assert objective.too_short(window) == unknown
        assert not objective.kept(window)
        assert math.isnan(objective.cost(window)) == unknown
        assert ("it ended before unanswered requests" in unusable(window, objective)) == unknown
