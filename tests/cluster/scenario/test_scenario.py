"""Scenarios: what users write becomes a cluster, a policy and arrivals; messages name mistakes."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tuner.cluster import simulate
from tuner.cluster.scenario import Network, Scenario
from tuner.cluster.scenario.delay import parse_delay
from tuner.errors import InvalidInput
from tuner.files.yaml_file import load_yaml
from tuner.scheduling.batching.eager import Eager
from tuner.scheduling.cluster import Delays

LINE = {"alpha_ms": 1.0, "beta_ms": 5.0}
NO_LINE = {"alpha_ms": None, "beta_ms": None}
SESSION = {"name": "a", **LINE, "slo_ms": 25, "rate": 100}


def scenario(*sessions: object, **fields: object) -> Scenario:
    """A scenario from what YAML gives."""
    given = {"policy": "eager", "accelerators": 2, "sessions": list(sessions) or [SESSION], **fields}
    return Scenario.model_validate(given)


def mistakes(*sessions: object, **fields: object) -> dict[str, str]:
    """Places and messages of what is refused."""
    with pytest.raises(ValidationError) as refusal:
        scenario(*sessions, **fields)
    return {".".join(map(str, error["loc"])): error["msg"] for error in refusal.value.errors()}


def test_the_smallest_scenario() -> None:
    """A linear profile, one accelerator kind, no network, ten seconds after one of warm-up."""
    made = scenario()

    spec = made.cluster_spec()
    assert [session.name for session in spec.sessions] == ["a"]
    assert spec.sessions[0].slo == 0.025
    assert spec.sessions[0].latency.shape == (1, 21)
    assert spec.sessions[0].latency[0, [0, 1, 20]] == pytest.approx([0.0, 0.006, 0.025])
    assert list(spec.kinds) == [0, 0]
    assert spec.delays == Delays()
    assert (made.duration, made.total_rate, made.seed) == (11.0, 100.0, 0)
    assert isinstance(made.make_policy(), Eager)


def test_tables_and_caps() -> None:
    """A table says how large a batch may be; max_batch caps tables and lines."""
    table = {"name": "b", "profile_ms": [3, 4, 4.5], "slo_ms": 4, "rate": 1}

    spec = scenario({**SESSION, "max_batch": 7}, table, {**table, "name": "c", "max_batch": 2}).cluster_spec()

    assert [session.latency.shape for session in spec.sessions] == [(1, 8), (1, 4), (1, 3)]
    assert spec.sessions[1].latency[0] == pytest.approx([0, 0.003, 0.004, 0.0045])


def test_unlike_accelerators_have_their_own_profiles() -> None:
    """One row per kind, in the order of the accelerators; as far as every kind is known."""
    profiles = {"fast": LINE, "slow": {"profile_ms": [9, 12, 15]}, "unused": LINE}
    session = {"name": "a", "profiles": profiles, "slo_ms": 30, "rate": 10}
    groups = [{"kind": "slow", "count": 2}, {"kind": "fast", "count": 1}, {"kind": "slow", "count": 1}]

    made = scenario(session, SESSION | {"name": "b"}, accelerators=groups)

    spec = made.cluster_spec()
    assert made.hardware.kinds == ("slow", "fast")
    assert list(spec.kinds) == [0, 0, 1, 0]
    assert spec.sessions[0].latency == pytest.approx(np.array([[0, 9, 12, 15], [0, 6, 7, 8]]) / 1e3)
    assert (spec.sessions[1].latency[0] == spec.sessions[1].latency[1]).all()


def test_copies_are_sessions_of_their_own() -> None:
    """Each has the rate; the policy knows them by number."""
    made = scenario(SESSION | {"copies": 3}, SESSION | {"name": "b"})

    assert [session.name for session in made.each_session] == ["a-0", "a-1", "a-2", "b"]
    assert [session.name for session in made.cluster_spec().sessions] == ["a-0", "a-1", "a-2", "b"]
    assert made.total_rate == 400


def test_popularity_shares_out_the_total() -> None:
    """Equal, or after Zipf in the order of the file; copies count one by one."""
    sessions = [{"name": "a", **LINE, "slo_ms": 25, "copies": 3}, {"name": "b", **LINE, "slo_ms": 25}]

    equal = scenario(*sessions, rate=100)
    zipf = scenario(*sessions, rate=100, popularity="zipf:0.9")

    assert [session.rate for session in equal.each_session] == [25.0] * 4
    weights = np.array([k**-0.9 for k in (1, 2, 3, 4)])
    assert [s.rate for s in zipf.each_session] == pytest.approx(100 * weights / weights.sum())
    assert zipf.total_rate == pytest.approx(100)


def test_scaling_multiplies_every_rate() -> None:
    """Of sessions, of the total, of schedules, of traces; what was worked out before is forgotten."""
    steps = SESSION | {"name": "b", "rate": [[0, 10], [5.5, 30]]}
    made, total = scenario(SESSION, steps), scenario({"name": "a", **LINE, "slo_ms": 25}, rate=40)
    assert (made.total_rate, total.total_rate) == (120.0, 40.0)

    assert made.scaled(0.5).total_rate == 60.0
    assert made.scaled(2).sessions[1].rate == ((0.0, 20.0), (5.5, 60.0))
    assert total.scaled(3).each_session[0].rate == 120.0


def test_arrivals_reach_the_stream() -> None:
    """Each form of arrival with its rate, over the seconds simulated."""
    forms = ["poisson", "gamma:0.5", "constant"]
    sessions = [SESSION | {"name": form, "arrival": form, "rate": 400} for form in forms]

    stream = scenario(*sessions, frontends=4, seed=3).make_requests()

    chunk = stream.next_chunk()
    assert chunk.until > 10
    early = chunk.time < 10
    assert np.bincount(chunk.session[early]) == pytest.approx([4000, 4000, 4000], rel=0.1)
    assert np.diff(chunk.time[chunk.session == 2]) == pytest.approx(1 / 400)
    assert set(chunk.source.tolist()) == {0, 1, 2, 3}


@pytest.fixture
def trace(tmp_path: Path) -> str:
    (tmp_path / "times.csv").write_text("seconds\n5\n5.5\n6\n7\n")
    return f"trace:{tmp_path / 'times.csv'}"


def test_traces_have_their_own_rate_or_are_played_at_another(trace: str) -> None:
    """Times count from the first; a rate stretches them, and so does scaling."""
    own = scenario({**SESSION, "arrival": trace, "rate": None})
    faster = scenario({**SESSION, "arrival": trace, "rate": 6})

    assert own.total_rate == 1.5
    assert own.make_requests().next_chunk().time.tolist() == [0.0, 0.5, 1.0, 2.0]
    assert faster.make_requests().next_chunk().time.tolist() == [0.0, 0.125, 0.25, 0.5]
    assert own.scaled(4).make_requests().next_chunk().time.tolist() == [0.0, 0.125, 0.25, 0.5]


def test_of_a_trace_the_same_part_is_measured_at_every_rate(trace: str) -> None:
    """All times shrink as its gaps do, those of the schedule of another session, too."""
    steps = SESSION | {"name": "b", "rate": [[0, 10], [5.5, 30]]}
    made = scenario({**SESSION, "arrival": trace, "rate": None}, steps, seconds=1.2, warmup_seconds=0.4)

    faster = made.scaled(4)
    assert (faster.seconds, faster.warmup_seconds) == pytest.approx((0.3, 0.1))
    assert faster.sessions[1].rate == ((0.0, 40.0), (1.375, 120.0))
    assert made.scaled(0.5).interval.last == pytest.approx(3.2)


def test_the_rate_of_a_trace_is_that_of_the_part_that_is_simulated(trace: str) -> None:
    """Two requests in the first 0.75 s; after its end it has no rate."""
    session = {**SESSION, "arrival": trace, "rate": None}
    short = scenario(session, seconds=0.5, warmup_seconds=0.25)
    shared = scenario({**session, "rate": None}, rate=3.0, seconds=0.25, warmup_seconds=0.125)

    assert short.total_rate == pytest.approx(2 / 0.75)
    assert shared.total_rate == pytest.approx(2 * 2 / 0.75)
    assert scenario(session, seconds=100.0).total_rate == 1.5


def test_a_damaged_trace_is_named(tmp_path: Path) -> None:
    """The trace, the line, and no word of an option that was not given."""
    (tmp_path / "times.csv").write_text("1\nsoon\n")
    (tmp_path / "one.csv").write_text("1\n")

    damaged = scenario({**SESSION, "arrival": f"trace:{tmp_path / 'times.csv'}"})
    with pytest.raises(InvalidInput, match=r"^trace .*times\.csv: line 2: 'soon' is not a time"):
        damaged.make_requests()
    with pytest.raises(InvalidInput, match="at least two"):
        scenario({**SESSION, "arrival": f"trace:{tmp_path / 'one.csv'}"}).make_requests()


def test_network_constants_are_what_the_policy_allows_for() -> None:
    """ms become s; one number of each is enough."""
    network = Network(control_ms=0.1, data_ms_per_request=0.05, response_ms=2)

    assert network.allowed() == Delays(control=1e-4, data=5e-5, response=2e-3)
    assert [part.tolist() for part in network.draw(np.random.default_rng(), 100)] == [[1e-4], [5e-5], [2e-3]]


def test_network_distributions_are_drawn_and_allowed_for_at_99_percent() -> None:
    """Unless the file says what the policy believes."""
    network = Network.model_validate(
        {"control_ms": "lognormal:2,0.5", "response_ms": "uniform:1,3", "allowance": {"response_ms": 1.5}}
    )

    draws = network.draw(np.random.default_rng(1), 40_000)
    believed = network.allowed()
    assert np.median(draws.control) == pytest.approx(2e-3, rel=0.02)
    assert np.mean(draws.control > believed.control) == pytest.approx(0.01, abs=0.002)
    assert draws.data.tolist() == [0.0]
    assert (draws.response.min(), draws.response.max()) == pytest.approx((1e-3, 3e-3), rel=0.01)
    assert believed.response == 1.5e-3


@pytest.mark.parametrize("text", ["lognormal:2,0.5", "uniform:1,3", "exponential:4", 2.5])
def test_quantiles_of_distributions(text: str | float) -> None:
    """The median of many draws is the quantile of a half, and so for 99 %."""
    distribution = parse_delay(text)

    drawn = distribution.draw(np.random.default_rng(2), 100_000)

    for share in (0.5, 0.99):
        assert np.quantile(drawn, share) == pytest.approx(distribution.quantile(share), rel=0.03)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gauss:1", "lognormal:MEDIAN,SIGMA"),
        ("lognormal:1", "write lognormal:MEDIAN,SIGMA"),
        ("lognormal:0,1", "greater than 0"),
        (
            "lognormal:0.1,500",
            "SIGMA is the standard deviation of the logarithm, such as 0.5, and at most 10",
        ),
        ("uniform:3,1", "LOW <= HIGH"),
        ("exponential:-1", "write exponential:MEAN"),
        ("uniform:1,x", "write uniform:LOW,HIGH"),
        (-1, "at least 0"),
        (math.inf, "finite"),
        (True, "is not a delay"),
        ([1], "is not a delay"),
    ],
)
def test_bad_delays(text: Any, said: str) -> None:
    """Each says what to write."""
    with pytest.raises(ValueError, match=said):
        parse_delay(text)


@pytest.mark.parametrize(
    ("change", "place", "said"),
    [
        (
            {"alpha_ms": None},
            "sessions.0",
            "alpha_ms and beta_ms, or profile_ms, or profiles, or model; got beta_ms",
        ),
        (NO_LINE, "sessions.0", "got none of them"),
        ({"profile_ms": [1]}, "sessions.0", "got alpha_ms, beta_ms, profile_ms"),
        ({"alpha_ms": 0, "beta_ms": 0}, "sessions.0", "not both be 0"),
        ({"alpha_ms": 0, "beta_ms": 1e-310}, "sessions.0", "must be at least 1e-06 ms together"),
        (NO_LINE | {"profile_ms": [1e-310]}, "sessions.0.profile_ms", "a batch of 1 takes 1e-310 ms"),
        ({"alpha_ms": -1}, "sessions.0.alpha_ms", "greater than or equal to 0"),
        ({"slo_ms": 5}, "sessions.0.slo_ms", "at least 6 ms, what a batch of 1 takes, but got 5"),
        ({"slo_ms": math.nan}, "sessions.0.slo_ms", "finite"),
        ({"slo_ms": 1e308}, "sessions.0.slo_ms", "less than or equal to 1000000000"),  # it never ended
        ({"rate": 0}, "sessions.0.rate", "between 1e-06 and 1e+09"),
        ({"rate": "many"}, "sessions.0.rate", "write 500, or [[0, 500], [10, 800]]"),
        ({"rate": [[1, 5]]}, "sessions.0.rate", "begin at 0"),
        ({"rate": [[0, 5], [0, 6]]}, "sessions.0.rate", "increase"),
        ({"rate": [[0, 5], [3, 0]]}, "sessions.0.rate", "the last not 0"),
        ({"arrival": "bursty"}, "sessions.0.arrival", "write poisson, gamma:SHAPE"),
        ({"arrival": "gamma:0"}, "sessions.0.arrival", "between 0.01 and 1000"),
        ({"arrival": "trace:nowhere.csv"}, "sessions.0.arrival", "there is no file nowhere.csv"),
        ({"copies": 0}, "sessions.0.copies", "greater than or equal to 1"),
        ({"profiles": {"x": LINE}, **NO_LINE}, "sessions.0.profiles", "{kind, count}"),
        ({"profiles": {}, **NO_LINE}, "sessions.0.profiles", "for each kind"),
    ],
)  # fmt: skip
def test_mistakes_in_a_session(change: dict[str, Any], place: str, said: str) -> None:
    """The message names the place, and says what to write."""
    told = mistakes({**SESSION, **change})

    assert said in told[place]


@pytest.mark.parametrize(
    ("fields", "place", "said"),
    [
        ({"policy": "magic"}, "policy", "use one of symphony, eager"),
        ({"options": {"beta": 1}}, "options.beta", "eager has no such option; it has no options"),
        ({"policy": "clipper", "options": {"window": "x"}}, "options.window", "integer"),
        ({"policy": "clipper", "options": {"share": 7.0}}, "options", "share: 7.0 is not between 0 and 1"),
        ({"accelerators": 0}, "accelerators.number", "greater than or equal to 1"),
        ({"accelerators": []}, "accelerators", "at least one"),
        ({"accelerators": [{"kind": "a", "count": -1}]}, "accelerators.groups.0.count", "greater than"),
        ({"sessions": []}, "sessions", "at least one"),
        ({"sessions": [SESSION, SESSION]}, "sessions.1.name", "'a' is the name of two"),
        ({"sessions": [SESSION | {"copies": 2}, SESSION | {"name": "a-1"}]}, "sessions.1.name", "'a-1' is"),
        ({"rate": 100}, "sessions.0.rate", "one or the other"),
        ({"popularity": "zipf:0.9"}, "popularity", "give it, too"),
        ({"popularity": "zipf:x", "rate": 5}, "popularity", "write equal, or zipf:0.9"),
        ({"seconds": 0}, "seconds", "greater than or equal to 0.000001"),
        ({"seconds": 1e-17}, "seconds", "greater than or equal to 0.000001"),
        ({"seconds": math.inf}, "seconds", "finite"),
        ({"planner": "nexus", "policy": "nexus", "epoch_s": 1e-9}, "epoch_s", "or equal to 0.000001"),
        ({"noise": -0.1}, "noise", "greater than or equal to 0"),
        ({"seed": -1}, "seed", "greater than or equal to 0"),
        ({"frontends": 1.5}, "frontends", "integer"),
        ({"network": {"control_ms": "fast"}}, "network.control_ms", "is not a delay"),
        ({"acelerators": 3}, "acelerators", "not permitted"),
    ],
)
def test_mistakes_in_a_scenario(fields: dict[str, Any], place: str, said: str) -> None:
    """The message names the place, and says what to write."""
    told = mistakes(**fields)

    assert said in told[place]


def test_kinds_without_a_profile_are_named() -> None:
    """Every kind of accelerator needs a profile in sessions that have one per kind."""
    session = {"name": "a", "profiles": {"x": LINE}, "slo_ms": 30, "rate": 10}

    told = mistakes(session, accelerators=[{"kind": "x", "count": 1}, {"kind": "y", "count": 1}])

    assert "no profile for the accelerators of kind 'y'" in told["sessions.0.profiles"]


def test_tables_must_not_fall() -> None:
    """A larger batch that takes less time is a mistake of the measurement."""
    told = mistakes({"name": "a", "profile_ms": [5, 4], "slo_ms": 10, "rate": 1})

    assert "a batch of 2 takes 4 ms after 5 ms" in told["sessions.0.profile_ms"]


def test_a_file_for_a_simulation_needs_rates(tmp_path: Path) -> None:
    """A goodput is searched from any rates, so that only `simulate` refuses a session without one."""
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "policy: eager\naccelerators: 2\nsessions:\n  - {name: a, alpha_ms: 1, beta_ms: 5, slo_ms: 25}\n"
    )

    with pytest.raises(
        InvalidInput, match=r"line 4: sessions\[0\]: has no rate; give requests/s, here or as"
    ):
        load_yaml(path, Scenario)
    assert load_yaml(path, Scenario, use="goodput").total_rate == 1.0


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("policy: nexus\nmargin: 1.1", "line 2: margin: only a `planner` reads it, and there is none"),
        ("policy: nexus\nepoch_s: 30", "line 2: epoch_s: only a `planner` reads it"),
        ("policy: nexus\nload_s: 1", "line 2: load_s: only a `planner` reads it"),
        ("policy: nexus\nmemory_mib: 10", "line 2: memory_mib: only a `planner` reads it"),
        ("planner: symphony\nmargin: 1.1", "line 2: margin: symphony plans for the requests that come"),
        ("planner: nexus\noptions: {rates: [5]}", r"line 2: options\.rates: nexus makes the plans"),
        (
            "planner: oblivious\noptions: {placement: [[[0, 1, 1.0]], []]}",
            r"line 2: options\.placement: oblivious makes the plans",
        ),
    ],
)
def test_what_nothing_reads_is_refused(tmp_path: Path, head: str, said: str) -> None:
    """In a file; a scenario made in Python, or copied to plan without its planner, may have it."""
    path = tmp_path / "cluster.yaml"
    rest = "accelerators: 2\nsessions:\n  - {name: a, alpha_ms: 1, beta_ms: 5, slo_ms: 25, rate: 100}\n"
    path.write_text(f"{head}\n{rest}")

    with pytest.raises(InvalidInput, match=said):
        load_yaml(path, Scenario)
    assert scenario(planner="nexus", policy="nexus", margin=1.1).margin == 1.1
    assert scenario(margin=1.1).margin == 1.1


def test_the_memory_of_a_model_that_nothing_reads_is_refused(tmp_path: Path) -> None:
    """As that of accelerators; with a planner it is read."""
    path = tmp_path / "cluster.yaml"
    line = "{name: a, alpha_ms: 1, beta_ms: 5, slo_ms: 25, rate: 100, memory_mib: 400}"
    rest = f"accelerators: 2\nsessions:\n  - {line}\n"

    path.write_text(f"policy: nexus\n{rest}")
    with pytest.raises(InvalidInput, match=r"line 4: sessions\[0\]\.memory_mib: only a `planner` reads it"):
        load_yaml(path, Scenario)
    path.write_text(f"planner: nexus\n{rest}")
    assert load_yaml(path, Scenario).sessions[0].memory_mib == 400


def test_what_a_simulation_lacks_is_said() -> None:
    """A scenario made in Python may be incomplete; whoever simulates it gets the error."""
    session = {"name": "a", **LINE, "slo_ms": 25}

    with pytest.raises(InvalidInput, match="policy: is missing"):
        Scenario.model_validate({"accelerators": 2, "sessions": [session]}).make_policy()
    with pytest.raises(InvalidInput, match="has neither `accelerators` nor `instances`"):
        Scenario.model_validate({"policy": "eager", "sessions": [session]}).make_policy()
    with pytest.raises(InvalidInput, match="requests: are missing"):
        Scenario.model_validate(
            {"policy": "oracle", "accelerators": 2, "sessions": [session]}
        ).make_requests()


def test_a_number_of_requests_instead_of_a_time() -> None:
    """All of them count, without a warm-up, until just after the last has come."""
    made = scenario(SESSION, requests=500)

    outcome = simulate(made)

    assert outcome.requests == 500
    assert made.interval.begin == 0
    assert outcome.seconds == made.interval.last == pytest.approx(5, rel=0.2)


@pytest.mark.parametrize("rate", [500, [[0, 500], [10, 800.5]]])
def test_a_rate_is_written_as_it_was_read(rate: object) -> None:
    """A schedule as well, without a warning of pydantic's."""
    made = scenario({**SESSION, "rate": rate})

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written = made.model_dump(mode="json")

    assert written["sessions"][0]["rate"] == rate
    assert Scenario.model_validate(written) == made
