"""How far a result can be relied on: intervals, the spread over seeds, and what speaks against it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.cluster import Scenario, Session, simulate
from tuner.cluster.confidence import bad_interval, doubts, other_rates
from tuner.cluster.goodput import Good, goodput
from tuner.errors import InvalidInput

LINE = {"alpha_ms": 1.0, "beta_ms": 5.0}


def make(seconds: float = 8.0, **session: object) -> Scenario:
    """Return a small cluster."""
    fields = {"name": "a", **LINE, "slo_ms": 25.0, "rate": 200.0, **session}
    return Scenario(
        policy="eager", accelerators=1, sessions=(Session.model_validate(fields),), seconds=seconds
    )


def test_the_interval_is_wilsons() -> None:
    """Against scipy, and at the ends."""
    from scipy.stats import binomtest

    for bad, requests in ((0, 50), (3, 100), (100, 10_000), (7, 7)):
        known = binomtest(bad, requests).proportion_ci(0.95, "wilson")
        assert bad_interval(bad, requests) == pytest.approx((known.low, known.high), abs=1e-4)
    assert bad_interval(0, 0) == (0.0, 1.0)


@pytest.mark.compiled
def test_few_requests_are_noted() -> None:
    """One in a hundred of 100 requests is one request."""
    few, many = make(0.5), make(10.0)

    assert "so luck decides" in doubts(few, simulate(few))[0]
    assert doubts(many, simulate(many)) == ()


@pytest.mark.compiled
def test_a_limit_takes_the_place_of_the_quantile_in_the_notes() -> None:
    """Two sessions of 1,000 requests each: ten of each may be bad, and two of all with a limit of 0.1 %."""
    scenario = make(5.0, copies=2)
    outcome = simulate(scenario)

    (few,) = doubts(scenario, outcome, good=Good(0.001))
    (overall,) = doubts(scenario, outcome, good=Good(0.001, overall=True))
    assert "requests of a-" in few
    assert "the share of 0.001" in few
    assert f"only {outcome.requests:,} requests were simulated" in overall
    assert doubts(scenario, outcome, good=Good(0.02)) == ()
    assert doubts(scenario, outcome, good=Good(0.006, overall=True)) == ()


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("seconds", "said"),
    [(1.0, "lasts 3 s, and 2 s are simulated: the rest plays no part"), (5.0, "nothing comes from then on")],
)
def test_a_trace_that_is_not_played_to_its_end_is_noted(tmp_path: Path, seconds: float, said: str) -> None:
    """Neither is a time that goes beyond its end what somebody meant."""
    (tmp_path / "times.csv").write_text("".join(f"{number / 600}\n" for number in range(1801)))
    fields = {"arrival": f"trace:{tmp_path / 'times.csv'}", "rate": None}

    scenario, whole = make(seconds, **fields), make(2.0, **fields)
    assert said in doubts(scenario, simulate(scenario))[-1]
    assert doubts(whole, simulate(whole)) == ()


@pytest.mark.compiled
def test_a_trace_with_too_few_requests_is_noted(tmp_path: Path) -> None:
    """Of a number of requests that no trace holds only those that it has are simulated."""
    (tmp_path / "times.csv").write_text("".join(f"{number / 600}\n" for number in range(1800)))
    session = Session.model_validate(
        {"name": "a", **LINE, "slo_ms": 25, "arrival": f"trace:{tmp_path / 'times.csv'}"}
    )
    fields = {"policy": "eager", "accelerators": 2, "sessions": (session,)}
    short, whole = (Scenario.model_validate({**fields, "requests": count}) for count in (5000, 1800))

    assert doubts(short, simulate(short)) == ("the traces have only 1,800 of the 5,000 `requests`",)
    assert doubts(whole, simulate(whole)) == ()


@pytest.mark.compiled
@pytest.mark.parametrize("run", [simulate, goodput])
def test_requests_that_all_come_at_the_same_time_are_refused(
    tmp_path: Path, run: Callable[[Scenario], object]
) -> None:
    """They have no rate. One more is enough."""
    (tmp_path / "times.csv").write_text("3\n" * 20 + "4\n5\n")
    session = {"name": "a", **LINE, "slo_ms": 25, "arrival": f"trace:{tmp_path / 'times.csv'}"}
    fields = {"policy": "eager", "accelerators": 1, "sessions": [session]}

    with pytest.raises(InvalidInput, match=r"requests all come at 0 s.*more are needed, at other times"):
        run(Scenario.model_validate({**fields, "requests": 20}))
    run(Scenario.model_validate({**fields, "requests": 21}))


@pytest.mark.compiled
def test_a_rate_above_the_capacity_is_noted() -> None:
    """What a queue holds at the end of a short time is not served for long."""
    scenario = make()
    outcome = simulate(scenario)

    assert doubts(scenario, outcome, 1.0) == ()
    assert "more than the accelerators can execute for long" in doubts(scenario, outcome, 5000.0)[0]


@pytest.mark.compiled
def test_batches_that_end_at_the_largest_of_a_line() -> None:
    """A table can hold larger ones."""
    scenario = make(alpha_ms=0.001)

    assert "at most 1,024 requests" in doubts(scenario, simulate(scenario))[0]
    assert doubts(make(alpha_ms=0.001, max_batch=64), simulate(scenario)) == ()


@pytest.mark.compiled
def test_a_short_table_that_caps_the_batches_of_other_kinds_is_noted() -> None:
    """With an SLO of 8.5 ms, a largest batch of 3 or a longer table it does not matter."""

    def unlike(slo_ms: float, table: list[float], **more: object) -> Scenario:
        profiles = {"a100": {"alpha_ms": 1.0, "beta_ms": 5.0}, "t4": {"profile_ms": table}}
        session = {"name": "a", "profiles": profiles, "slo_ms": slo_ms, "rate": 200.0, **more}
        kinds = [{"kind": "a100", "count": 4}, {"kind": "t4", "count": 1}]
        return Scenario.model_validate(
            {"policy": "eager", "accelerators": kinds, "sessions": [session], "seconds": 8.0}
        )

    outcome = simulate(make())
    short = [9.0, 12.0, 15.0]

    (said,) = doubts(unlike(50.0, short), outcome)
    others = unlike(8.5, short), unlike(50.0, short, max_batch=3), unlike(50.0, [9.0] * 45)

    assert "batches of a have at most 3 requests on every accelerator" in said
    assert "its profile on t4 ends there, though more fit into its SLO on a100" in said
    assert [doubts(other, outcome) for other in others] == [()] * 3


@pytest.mark.compiled
def test_other_seeds_are_near() -> None:
    """Their search begins at the result, and takes few trials."""
    scenario = make()
    found = goodput(scenario)

    others = other_rates(scenario, found, 2)
    again = goodput(scenario, near=found.multiplier)

    assert others == pytest.approx((found.rate, found.rate), rel=0.25)
    assert again.rate == pytest.approx(found.rate, rel=0.01)
    assert len(again.evaluations) < len(found.evaluations)


def test_profiles_that_would_never_end_are_refused() -> None:
    """An accelerator of 10^12 requests/s, a thousand in each nanosecond, is a mistake in a unit."""
    with pytest.raises(InvalidInput, match=r"could execute 1e\+12 requests/s.* check the profiles"):
        goodput(make(alpha_ms=None, beta_ms=None, profile_ms=[1e-6] * 1000))


def test_a_response_that_takes_the_whole_slo_is_refused() -> None:
    """No answer could be in time."""
    fields = make().model_dump(exclude_defaults=True) | {"network": {"response_ms": 30.0}}

    with pytest.raises(ValueError, match="takes 30 ms, not less than slo_ms 25 of a"):
        Scenario.model_validate(fields)
