"""Runs: an agent in an environment, described by plain values."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import tuner.envs.live  # noqa: F401  # takes what it imports before a test replaces it
from tests.laboratory.agent_runs import SMALL
from tuner.agents import State
from tuner.envs.cluster import EXAMPLE
from tuner.envs.simulator.server import ServerModel
from tuner.errors import InvalidInput
from tuner.laboratory.agent_run import (
    SHOWN,
    RunSpec,
    check_run,
    knows_costs,
    new_agent,
    run_agent,
    serving,
    stage_environment,
)
from tuner.laboratory.environment import environments
from tuner.laboratory.metrics import figures_of

SPEC = RunSpec(**SMALL)


def test_the_same_spec_gives_the_same_trial() -> None:
    """And another seed another one."""
    first, again, other = (run_agent(spec) for spec in (SPEC, SPEC, SPEC.seeded(1)))

    for name in first._fields[2:-1]:
        assert np.array_equal(getattr(first, name), getattr(again, name), equal_nan=True), name
    for name in SHOWN:
        assert np.array_equal(first.shown[name], again.shown[name], equal_nan=True), name
    assert not np.array_equal(first.cost, other.cost)


def test_a_simulated_target_is_an_environment() -> None:
    """Of any adapter; what its windows cost is learned."""
    spec = RunSpec(env="sim://mlp?rate=50", arguments={"slo": "p95=30ms"}, windows=6)

    run = run_agent(spec)

    assert len(run.cost) == 6
    assert run.learned.all()
    assert np.isnan(run.expected).all()


def test_nobody_is_trained_on_a_live_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be explored for hundreds of windows, without a guard."""
    monkeypatch.setattr(
        "tuner.profiler.attachment.attach", lambda *_, **__: nullcontext(Mock(simulated=False))
    )

    with pytest.raises(InvalidInput, match=r"triton://.*/m is a live server; use `tuner run`"):
        stage_environment(replace(SPEC, env="triton://127.0.0.1:1/m", arguments={}))


def test_loads_follow_each_other() -> None:
    """Each has its windows and its level; the agent stays the same."""
    run = run_agent(replace(SPEC, rates=(60.0, 150.0), windows=6))

    assert len(run.cost) == 12
    assert run.level[:6].max() < run.level[6:].min()
    assert run.skipped == np.count_nonzero(~run.learned)


def test_windows_in_which_nothing_was_asked_break_no_slo() -> None:
    """At ten requests in a hundred seconds most windows are empty: those answered are judged alone."""
    run = run_agent(replace(SPEC, agent="random", rates=(0.2,), windows=10, exact=False))

    empty = np.isnan(run.kept)
    assert 0 < np.count_nonzero(empty) == run.skipped < 10
    assert np.array_equal(empty, np.isnan(run.shown["mean"]))
    assert np.array_equal(empty, np.isnan(run.cost))
    assert figures_of(run).slo_violations == 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"env": "CartPole-v1"}, "tuner/TritonCPU-v0"),
        ({"agent": "nobody"}, "q_learning"),
        ({"agent": "rrl", "parameters": {"colour": 1}}, "caution"),
        ({"arguments": {"scenario": {}}}, "--scenario: means nothing"),
        ({"arguments": {"slo": "fast"}}, "--slo"),
        ({"arguments": {"objective": "speed"}}, "--objective"),
    ],
)
def test_what_cannot_be_tried_is_named(change: dict[str, Any], named: str) -> None:
    """Unknown names list what there is."""
    with pytest.raises(InvalidInput, match=named):
        check_run(replace(SPEC, **change))


def test_environments_are_made_from_plain_values() -> None:
    """A server model and a cluster as their files hold them; the live environment is not for training."""
    server = ServerModel(cores=4.0)
    env = stage_environment(replace(SPEC, arguments={"server": server.to_json()}))
    cluster = RunSpec(env="tuner/Cluster-v0", arguments={"scenario": EXAMPLE.model_dump(mode="json")})

    assert serving(env).objective.cores == 4.0
    assert serving(stage_environment(cluster)).space.size == 720
    assert not knows_costs(cluster)
    assert "tuner/Live-v0" not in environments()


def test_the_oracle_chooses_by_the_costs_at_the_rate_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """By which it is judged; the middle of the load level is another rate, where another may be the best."""
    env = stage_environment(SPEC)
    world = serving(env)
    low, high = world.space.distinct[[0, -1]].tolist()

    def expected(rate: float) -> np.ndarray:
        costs = np.full(world.space.size, 2.0)
        costs[low if rate < 315 else high] = 1.0
        return costs

    monkeypatch.setattr(world, "expected_costs", expected)
    oracle = new_agent(replace(SPEC, agent="oracle", parameters={}), env)

    choices = [oracle.select(State(level=26, configuration=0, rate=rate)) for rate in (300.0, 330.0, None)]

    assert choices == [low, high, high]
    env.close()


def test_trials_are_called_by_their_agent_and_what_was_changed() -> None:
    """So that the same agent with other parameters has a row of its own."""
    assert replace(SPEC, parameters={"carry": False, "caution": 2}).label == "rrl:carry=False:caution=2"
