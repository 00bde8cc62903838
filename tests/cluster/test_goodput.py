"""The search for the goodput: against known curves, and against closed forms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.cluster.goodput import Good, TriedRate, capacity, goodput, long_enough
from tuner.cluster.scenario import Scenario
from tuner.errors import InvalidInput

"""Without compilation simulations are a hundred times slower, and kept shorter."""


def scenario(*, rate: object = 100.0, slo_ms: float = 25.0, sessions: int = 1, **fields: object) -> Scenario:
    names = [f"s{index}" for index in range(sessions)]
    parts = [{"name": name, "alpha_ms": 1, "beta_ms": 5, "slo_ms": slo_ms, "rate": rate} for name in names]
    return Scenario.model_validate({"policy": "eager", "accelerators": 2, "sessions": parts, **fields})


@dataclass
class Curve:
    """A cluster whose bad rate is 0 up to a rate, and then grows."""

    knee: float
    bad: float = 1.0
    """The bad rate far beyond the knee."""

    def __call__(self, scenario: Scenario) -> Any:
        over = max(0.0, 1 - self.knee / scenario.total_rate)
        return Fake(worst_bad_rate=self.bad * over, scenario=scenario)


@dataclass
class FakeSession:
    bad_rate: float
    requests: int = 100


@dataclass
class Fake:
    """An outcome of which all requests together have half the bad rate of the worst session."""

    worst_bad_rate: float
    scenario: Scenario
    requests: int = 100

    @property
    def bad_rate(self) -> float:
        return self.worst_bad_rate / 2

    @property
    def sessions(self) -> list[FakeSession]:
        return [FakeSession(self.worst_bad_rate) for _ in self.scenario.each_session]

    def to_json(self) -> dict[str, float]:
        return {"bad_rate": self.bad_rate}


@pytest.mark.parametrize("rate", [1.0, 100.0, 30_000.0])
@pytest.mark.parametrize("knee", [0.3, 40.0, 1300.0, 1590.0, 5000.0])
def test_the_search_finds_a_known_knee(rate: float, knee: float) -> None:
    """Wherever it is, whatever the rates of the scenario, to the tolerance; in a few trials."""
    found = goodput(scenario(rate=rate), run=Curve(knee), tolerance=0.005)

    highest = knee / 0.99
    assert highest / 1.005 <= found.rate <= highest
    assert found.multiplier == pytest.approx(found.rate / rate)
    assert len(found.evaluations) <= 22
    assert found.outcome.scenario.total_rate == pytest.approx(found.rate)  # type: ignore[attr-defined]
    assert all(trial.kept == (trial.rate <= highest) for trial in found.evaluations)


def test_the_result_does_not_depend_on_the_rates_of_the_file() -> None:
    """Only on their proportions."""
    one, other = (goodput(scenario(rate=rate), run=Curve(900.0)) for rate in (1.0, 1234.5))

    assert one.rate == pytest.approx(other.rate, rel=1e-9)
    assert len(one.evaluations) == len(other.evaluations)


def test_overall_counts_all_requests_together() -> None:
    """Half the bad rate of the worst session leaves room for a higher rate."""
    each = goodput(scenario(), run=Curve(1000.0), good=Good(0.02))
    overall = goodput(scenario(), run=Curve(1000.0), good=Good(0.02, overall=True))

    assert each.rate == pytest.approx(1000 / 0.98, rel=0.005)
    assert overall.rate == pytest.approx(1000 / 0.96, rel=0.005)
    assert overall.to_json() == {"rate": overall.rate, "bad_rate": overall.outcome.bad_rate}


def test_overall_the_quantiles_of_sessions_count_by_their_requests() -> None:
    """With 100 requests each, of which 10 % and 1 % may be late, 5.5 % of all may be."""
    sessions = [
        {
            "name": f"s{quantile}",
            "alpha_ms": 1,
            "beta_ms": 5,
            "slo_ms": 25,
            "rate": 100.0,
            "quantile": quantile,
        }
        for quantile in (0.9, 0.99)
    ]

    def run(tried: Scenario) -> Any:
        return Fake(Curve(1000.0)(tried).worst_bad_rate, tried, requests=200)

    two = Scenario.model_validate({"policy": "eager", "accelerators": 2, "sessions": sessions})
    found = goodput(two, run=run, good=Good(overall=True))

    assert found.rate == pytest.approx(1000 / (1 - 2 * 0.055), rel=0.005)


def test_no_rate_and_every_rate() -> None:
    """Nothing kept gives 0 with the lowest tried; everything kept gives the highest of use."""
    nothing = goodput(scenario(), run=Curve(0.0))
    everything = goodput(scenario(), run=Curve(math.inf))

    assert (nothing.rate, nothing.multiplier) == (0.0, 0.0)
    assert nothing.outcome.scenario.total_rate == min(trial.rate for trial in nothing.evaluations)  # type: ignore[attr-defined]
    assert everything.rate > 10 * capacity(scenario())


def test_a_search_that_begins_far_beyond_the_capacity_goes_down() -> None:
    """As near the goodput of another seed, where every rate was good; the first rates are no result."""
    made = scenario()

    found = goodput(made, run=Curve(500.0), near=40 * capacity(made) / made.total_rate)

    assert found.rate == pytest.approx(500 / 0.99, rel=0.005)


def test_no_accelerator_that_is_there_meets_the_slo() -> None:
    """Another kind would: there is no good rate; tried is what two accelerators execute one by one."""
    profiles = {"fast": {"profile_ms": [5]}, "slow": {"profile_ms": [50]}}
    slow = {
        "policy": "eager",
        "accelerators": [{"kind": "slow", "count": 2}],
        "sessions": [{"name": "s", "profiles": profiles, "slo_ms": 25, "rate": 1}],
    }

    found = goodput(Scenario.model_validate(slow), run=Curve(0.0))

    assert (found.rate, found.multiplier) == (0.0, 0.0)
    assert max(trial.rate for trial in found.evaluations) == pytest.approx(0.8 * 40)


@pytest.mark.compiled
def test_a_rate_without_requests_is_not_good() -> None:
    """An SLO that nothing can meet has no goodput, not one so low that no request came to be late."""
    found = goodput(scenario(network={"response_ms": 24.0}, seconds=0.5, warmup_seconds=0.1))

    assert found.rate == 0.0
    assert min(trial.rate for trial in found.evaluations) < 1


@pytest.mark.parametrize("overall", [False, True])
def test_of_a_rate_at_which_nothing_came_nothing_is_known(overall: bool) -> None:
    """None of no requests was late; that is no goodput."""

    def run(tried: Scenario) -> Any:
        return Fake(0.0, tried, requests=0)

    found = goodput(scenario(), run=run, good=Good(overall=overall))

    assert found.rate == 0.0
    assert not any(trial.kept for trial in found.evaluations)


def test_a_schedule_that_begins_after_the_end_is_refused() -> None:
    """Nothing can be said of its goodput; where only one session's does, there is one."""
    late = [[0, 0], [20, 500]]

    with pytest.raises(InvalidInput, match="no request comes in the 11 s that are simulated; measure longer"):
        goodput(scenario(rate=late), run=Curve(700.0))
    assert goodput(scenario(rate=late, seconds=20.0), run=Curve(700.0)).rate > 0
    made = scenario(rate=late, sessions=2)
    sessions = (made.sessions[0].model_copy(update={"rate": 100.0}), made.sessions[1])
    assert goodput(made.model_copy(update={"sessions": sessions}), run=Curve(700.0)).rate > 0


def test_progress_is_told_every_trial() -> None:
    """In order, as in the result."""
    told: list[TriedRate] = []

    found = goodput(scenario(), run=Curve(700.0), progress=told.append)

    assert tuple(told) == found.evaluations


def test_capacity() -> None:
    """Batches of 20 in 25 ms on two accelerators; two sessions share; unlike accelerators add up.

    Larger batches that would miss the SLO do not count, though they take less time for each request.
    """
    profiles = {"a": {"profile_ms": [10]}, "b": {"profile_ms": [20, 25]}}
    unlike = {
        "policy": "eager",
        "accelerators": [{"kind": "a", "count": 3}, {"kind": "b", "count": 1}],
        "sessions": [{"name": "s", "profiles": profiles, "slo_ms": 30, "rate": 1}],
    }

    assert capacity(scenario()) == pytest.approx(1600)
    assert capacity(scenario(sessions=2, slo_ms=10)) == pytest.approx(1000)
    assert capacity(Scenario.model_validate(unlike)) == pytest.approx(350)
    late = {"name": "s", "profile_ms": [20, 35], "slo_ms": 30, "rate": 1}
    one = Scenario.model_validate({"policy": "eager", "accelerators": 1, "sessions": [late]})
    assert capacity(one) == pytest.approx(50)


def test_few_requests_lengthen_the_simulation() -> None:
    """Until every session has enough, up to 20 times; never with a schedule, which is as long as it is."""
    assert long_enough(scenario(rate=200.0), 1000).seconds == 10
    assert long_enough(scenario(rate=20.0), 1000).seconds == 50
    assert long_enough(scenario(rate=0.1), 1000).seconds == 200
    assert long_enough(scenario(rate=[[0, 20], [5, 1]]), 1000).seconds == 10


def test_a_rare_session_lengthens_no_simulation_beyond_what_anybody_waits_for() -> None:
    """Eleven seconds of all would be 100 million requests, but the rare one has its 1,000 after minutes."""
    often = {"name": "often", "alpha_ms": 0.01, "beta_ms": 1, "slo_ms": 25, "rate": 1e6}
    sessions = [often, {**often, "name": "rare", "rate": 1.0}]
    made = Scenario.model_validate({"policy": "eager", "accelerators": 100, "sessions": sessions})

    with pytest.raises(InvalidInput, match=r"goodput: .* of that, for the rarest session, are .*; check the"):
        goodput(made, run=Curve(1e6))


@pytest.mark.parametrize(
    ("good", "sessions", "seconds"),
    [(Good(), 1, 10), (Good(0.001), 1, 20), (Good(0.0), 1, 10), (Good(0.001, overall=True), 4, 10)],
)
def test_a_limit_that_few_requests_may_break_lengthens_the_simulation(
    good: Good, sessions: int, seconds: float
) -> None:
    """At 500 requests/s of each session until ten may be bad, of each or overall; where none may, nothing."""
    tried: list[Scenario] = []

    def run(one: Scenario) -> Any:
        tried.append(one)
        return Curve(math.inf)(one)

    goodput(scenario(rate=500.0, sessions=sessions), good=good, at_least=500.0 * sessions, run=run)

    assert tried[0].seconds == pytest.approx(seconds)


@pytest.mark.parametrize("wrong", [{"good": Good(1.0)}, {"good": Good(-0.1)}, {"tolerance": 0.0}])
def test_senseless_limits(wrong: dict[str, Any]) -> None:
    """Told at once."""
    with pytest.raises(ValueError, match="must hold"):
        goodput(scenario(), run=Curve(1.0), **wrong)


def single(**fields: Any) -> Scenario:
    """One accelerator, 10 ms for each request."""
    session = {"name": "s", "profile_ms": [10], "slo_ms": 50, "rate": 1, **fields.pop("session", {})}
    given = {"accelerators": 1, "sessions": [session], "warmup_seconds": 0.5, **fields}
    return Scenario.model_validate(given)


@pytest.mark.compiled
def test_goodput_of_regular_arrivals_is_the_capacity() -> None:
    """D/D/1: 100 requests/s, and the 1 % that may be dropped on top."""
    made = single(policy="eager", session={"arrival": "constant"}, seconds=50)

    found = goodput(made, least_requests=1)

    assert 100 <= found.rate <= 102
    assert found.outcome.bad_rate <= 0.01


@pytest.mark.compiled
def test_of_a_trace_the_rate_that_came_is_reported(tmp_path: Path) -> None:
    """Equal gaps, a tenth as long after second 5: only the first part is played, at whatever rate."""
    times = np.concatenate([np.arange(0.0, 5.0, 0.1), np.arange(5.0, 100.0, 0.01)])
    (tmp_path / "times.csv").write_text("\n".join(f"{time:.3f}" for time in times))
    session = {"arrival": f"trace:{tmp_path / 'times.csv'}", "rate": None}
    made = single(policy="eager", session=session, seconds=4.0)

    found = goodput(made)

    assert 100 <= found.rate <= 125
    assert found.rate == found.outcome.rate
    for trial in found.evaluations:  # rounding may move one of the 40 requests out of the measured part
        assert trial.rate / trial.multiplier == pytest.approx(10, rel=0.03)


def waits_longer(load: float, slots: int) -> float:
    """M/D/1: the share of requests that wait longer than a number of service times (Erlang 1909)."""
    terms = [
        (load * (k - slots)) ** k / math.factorial(k) * math.exp(-load * (k - slots))
        for k in range(slots + 1)
    ]
    return 1 - (1 - load) * sum(terms)


@pytest.mark.compiled
def test_goodput_of_poisson_arrivals_is_that_of_m_d_1() -> None:
    """First come, first served, nothing dropped: 1 % wait longer than four services."""
    low, high = 0.1, 0.99
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if waits_longer(middle, 4) <= 0.01 else (low, middle)
    made = single(policy="timeout", seconds=1000, seed=1)

    found = goodput(made, least_requests=1, tolerance=0.02)

    assert found.rate == pytest.approx(100 * low, rel=0.03)
