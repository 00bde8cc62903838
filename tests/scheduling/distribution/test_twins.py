"""Distribution policies against their plain twins, on random clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.scheduling.distribution.naive import TWINS, Clkwrk
from tests.scheduling.scenarios import MS, Scenario, random_scenario
from tests.scheduling.twin import assert_twin
from tuner.scheduling.catalogue import build_policy, options_of
from tuner.testing.driver import PolicyRun, drive, tell

OPTIONS: dict[str, dict[str, Any]] = {"kairos": {"learn": False}, "drs": {"threshold": 3}}


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("seed", range(8))
def test_like_its_twin(name: str, seed: int) -> None:
    """A policy gives the commands that its twin in plain Python gives, whatever requests really take."""
    scenario = random_scenario(seed, requests=80)
    policy = build_policy(name, scenario.spec, options_of(name)(**OPTIONS.get(name, {})))

    trace = drive(policy, scenario.arrivals, scenario.stretch, items=sizes(scenario, seed))

    assert len(trace.batches) == 80
    assert_twin(trace.events, TWINS[name](scenario.spec), within=1e-9)


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("seed", range(8))
def test_like_its_twin_when_requests_come_together(name: str, seed: int) -> None:
    """Of requests of one instant the first session's come first, and of a session those named first."""
    scenario = random_scenario(seed, requests=60)
    step = 10 * MS
    together = [(step * (time // step), session, source) for time, session, source in scenario.arrivals]
    policy = build_policy(name, scenario.spec, options_of(name)(**OPTIONS.get(name, {})))

    trace = drive(policy, together, scenario.stretch, items=sizes(scenario, seed))

    assert_twin(trace.events, TWINS[name](scenario.spec), within=1e-9)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        *((name, {}) for name in TWINS),
        ("clkwrk", {"refuse": True, "learn": True}),
        ("kairos", {"refuse": True}),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_the_pool_is_counted(name: str, more: dict[str, Any], seed: int) -> None:
    """After every event it is known how many instances are idle, since when, and how many requests wait."""
    scenario = random_scenario(seed, requests=40)
    spec = replace(scenario.spec, busy={0: 20 * MS})
    options = options_of(name)(**OPTIONS.get(name, {}), **more)
    events = drive(
        build_policy(name, spec, options), scenario.arrivals, scenario.stretch, items=sizes(scenario, seed)
    ).events

    again = PolicyRun(policy=build_policy(name, spec, options))
    for event in events:
        tell(again, event.kind, event.subject, event.now, event.items)
        cluster, state = again.policy.cluster, again.policy.pool.state[0]
        idle = cluster.accelerators["outstanding"] == 0
        assert state.idle == idle.sum()
        assert (cluster.accelerators["free_at"][idle] <= event.now).all()
        assert state.waiting == (cluster.queues["tail"] - cluster.queues["head"]).sum()


@pytest.mark.parametrize("name", ["clkwrk", "kairos"])
@pytest.mark.parametrize("seed", range(4))
def test_those_that_refuse_are_like_their_twins(name: str, seed: int) -> None:
    """What no instance can serve in time is refused: when it comes by clkwrk, when it is lost by kairos."""
    scenario = random_scenario(seed, requests=80)
    options = options_of(name)(refuse=True, learn=False)
    policy = build_policy(name, scenario.spec, options)
    twin: Any = TWINS[name](scenario.spec)
    twin.refuse = True

    trace = drive(policy, scenario.arrivals, scenario.stretch, items=sizes(scenario, seed))

    assert_twin(trace.events, twin, within=1e-9)
    assert trace.dropped or seed != 0


@pytest.mark.parametrize("refuse", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_clkwrk_that_learns_is_like_its_twin(seed: int, refuse: bool) -> None:
    """What waits always takes what is believed at the time when a request comes."""
    scenario = random_scenario(seed, requests=80)
    policy = build_policy("clkwrk", scenario.spec, options_of("clkwrk")(refuse=refuse, learn=True))
    twin = Clkwrk(scenario.spec)
    twin.refuse, twin.learn = refuse, True

    trace = drive(policy, scenario.arrivals, scenario.stretch, items=sizes(scenario, seed))

    assert_twin(trace.events, twin, within=1e-9)


def sizes(scenario: Scenario, seed: int) -> list[int]:
    """Sizes up to what the profile of each request's session knows."""
    rng = np.random.default_rng(seed)
    largest = [session.latency.shape[1] - 1 for session in scenario.spec.sessions]
    return [int(rng.integers(1, largest[owner] + 1)) for _, owner, _ in scenario.arrivals]
