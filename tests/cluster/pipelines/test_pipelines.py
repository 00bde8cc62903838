"""Queries in the simulated cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cluster.pipelines.naive import NaivePipelines, summary
from tuner.cluster.pipelines import PipelineScenario, simulate_pipeline

pytestmark = pytest.mark.kernels

CHAIN = [
    {"name": "detect", "alpha_ms": 1.0, "beta_ms": 10.0, "next": [{"stage": "read", "gamma": 2.0}]},
    {"name": "read", "alpha_ms": 0.5, "beta_ms": 5.0},
]
DIAMOND = [
    {
        "name": "detect",
        "alpha_ms": 1.0,
        "beta_ms": 10.0,
        "next": [{"stage": "left", "gamma": 2.0}, {"stage": "right"}],
    },
    {"name": "left", "alpha_ms": 0.5, "beta_ms": 5.0, "next": [{"stage": "join"}]},
    {"name": "right", "alpha_ms": 0.5, "beta_ms": 8.0, "next": [{"stage": "join", "gamma": 3.0}]},
    {"name": "join", "alpha_ms": 0.2, "beta_ms": 3.0},
]
TIGHT = [
    {"name": "first", "alpha_ms": 1.0, "beta_ms": 48.0, "next": [{"stage": "second"}]},
    {"name": "second", "alpha_ms": 1.0, "beta_ms": 48.0},
]


def scenario(stages: list[dict[str, Any]], **given: Any) -> PipelineScenario:
    """A query of 200 ms at 200 queries/s."""
    fields = {"policy": "nexus", "accelerators": 4, "seconds": 1.0, "warmup_seconds": 0.0, "seed": 3}
    query = {"slo_ms": 200.0, "rate": given.pop("rate", 200.0), "stages": stages}
    return PipelineScenario.model_validate({**fields, **given, "query": query})


@pytest.mark.parametrize("deadlines", ["split", "carried"])
@pytest.mark.parametrize(
    ("stages", "policy", "options", "load"),
    [
        (CHAIN, "nexus", {}, 300.0),
        (CHAIN, "nexus", {"order": "most_left"}, 1500.0),
        (DIAMOND, "nexus", {}, 250.0),
        pytest.param(CHAIN, "symphony", {}, 200.0, marks=pytest.mark.slow),
    ],
)
def test_the_engine_does_what_its_plain_twin_does(
    stages: list[dict[str, Any]], policy: str, options: dict[str, Any], load: float, deadlines: str
) -> None:
    """The same queries good, late and dropped, with the same latencies; overload included."""
    given = {"policy": policy, "options": options, "load": load, "deadlines": deadlines}
    asked = scenario(stages, hop_ms=0.5, seconds=0.3, **given)
    times = asked.make_requests().next_chunk().time
    times = times[times < asked.interval.last]

    found = simulate_pipeline(asked)
    naive = NaivePipelines(asked, times.tolist()).go()

    good, late, dropped, latency = summary(naive, 0.2)
    assert (found.good, found.late, found.dropped) == (good, late, dropped)
    assert found.mean_latency == pytest.approx(latency)


def test_a_query_alone_takes_what_its_stages_take() -> None:
    """Both stages and the hop between them; nothing waits."""
    found = simulate_pipeline(scenario(CHAIN, load=0.5, arrival="constant", hop_ms=4.0, seconds=9.0))

    assert (found.late, found.dropped, found.wasted) == (0, 0, 0.0)
    # One of the two requests to the second stage is sent at once, the other after it.
    assert 0.011 + 0.004 + 0.006 <= found.mean_latency <= 0.011 + 0.004 + 2 * 0.0055
    assert found.queries > 3


def test_calls_come_gamma_times_on_average() -> None:
    """Also where gamma is no whole number, and where a query makes no call at all."""
    stages = [{**CHAIN[0], "next": [{"stage": "read", "gamma": 0.3}]}, CHAIN[1]]

    found = simulate_pipeline(scenario(stages, seconds=1.5))

    detect, read = found.stages.sessions
    assert found.bad_rate < 0.01
    assert read.requests == pytest.approx(0.3 * detect.requests, rel=0.25)
    assert found.queries == detect.requests


@pytest.mark.compiled
def test_under_overload_only_split_deadlines_waste_work() -> None:
    """What a stage leaves of its budget is lost to the next; with the others no stage begins in vain."""
    split, carried, proactive = (
        simulate_pipeline(scenario(CHAIN, load=2000.0, deadlines=each, options={"drop": "early"}))
        for each in ("split", "carried", "proactive")
    )

    assert split.wasted > 0.01
    assert max(carried.wasted, proactive.wasted) < 0.001
    assert carried.good > split.good


def test_a_load_is_a_schedule() -> None:
    """Whatever rate was planned for."""
    found = simulate_pipeline(scenario(CHAIN, load=[[0, 50], [0.5, 150]]))

    assert found.queries == pytest.approx(100, rel=0.3)


@pytest.mark.compiled
def test_proactive_deadlines_leave_time_to_the_first_stage() -> None:
    """Also where planned batches would execute for all of their budgets: it had hardly any."""
    carried, proactive = (
        simulate_pipeline(scenario(TIGHT, load=100.0, deadlines=each, options={"drop": "early"}))
        for each in ("carried", "proactive")
    )

    assert proactive.good > 0.9 * carried.good > 50


def test_an_slo_may_be_below_a_millisecond() -> None:
    """If the stages are as fast."""
    quick = {"slo_ms": 0.5, "rate": 200.0, "stages": [{"name": "detect", "alpha_ms": 0.01, "beta_ms": 0.05}]}
    asked = PipelineScenario.model_validate({"query": quick, "policy": "nexus", "accelerators": 1})

    assert asked.make_requests().next_chunk().time.size > 0


def test_rules_of_the_form() -> None:
    """A policy for queries forms batches, planned for the query's rate; a query must be finite."""
    with pytest.raises(ValueError, match="the plan is made for `rate` of the query; leave it out"):
        scenario(CHAIN, policy="nexus", options={"rates": [1.0, 1.0]})
    with pytest.raises(ValueError, match="there is no 'kairos' for queries"):
        scenario(CHAIN, policy="kairos")
    with pytest.raises(ValueError, match=r"greater than or equal to 0\.000001"):
        scenario(CHAIN, seconds=1e-17, warmup_seconds=1.0)
    with pytest.raises(ValueError, match="requests"):
        simulate_pipeline(
            scenario([{**CHAIN[0], "next": [{"stage": "read", "gamma": 1e6}]}, CHAIN[1]], rate=0.01)
        )


def test_the_same_seed_gives_the_same_result() -> None:
    """Noise and calls included."""
    one, other = (
        simulate_pipeline(scenario(CHAIN, noise=0.2, deadlines="proactive", seconds=0.2)) for _ in range(2)
    )

    assert one == other
    assert np.array_equal(one.latencies, other.latencies)
