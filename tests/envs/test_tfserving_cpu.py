"""Tests of the environment over the simulated TensorFlow Serving on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tuner.envs.tfserving_cpu import tfserving_cpu, tfserving_cpu_vector
from tuner.errors import InvalidInput
from tuner.objective import Objective, Slo
from tuner.setting import Load, Setting
from tuner.testing.environment import EnvironmentContract
from tuner.workload import workload

NAME = "tuner.envs:tuner/TFServingCPU-v0"
SHORT: dict[str, Any] = {"window": 4.0}


class TestTFServingCPU(EnvironmentContract):
    """The contract of environments."""

    @pytest.fixture
    def env(self) -> Iterator[gym.Env[np.ndarray, np.int64]]:
        env = gym.make(NAME, **SHORT)
        yield env
        env.close()


def test_knobs() -> None:
    """There are 1,331 configurations, and an episode begins where the authors begin."""
    env = tfserving_cpu(**SHORT)

    _, info = env.reset(seed=1)

    assert isinstance(env.action_space, gym.spaces.Discrete)
    assert env.action_space.n == 1331
    assert dict(info["configuration"]) == {"request_parallelism": 5.0, "inter_op": 5.0, "intra_op": 5.0}


def test_offered_rate_is_told() -> None:
    """Info holds the load of the window just measured; the reset's window has that of the first step."""
    env = tfserving_cpu(workload=workload("ramp", 14.0), episode_windows=5, **SHORT)
    rates = env.workload.rates(5, np.random.default_rng(0))

    told = [env.reset(seed=1)[1]["rate"]]
    told += [env.step(np.int64(0))[4]["rate"] for _ in range(5)]

    assert told == pytest.approx([rates[0], *rates])


def test_windows_are_a_thousand_requests_of_the_workload() -> None:
    """Its nominal rate counts, not the model's, and no other one stands beside it."""
    env = tfserving_cpu(workload=workload("constant", 28.0))

    measured = env.reset(seed=1)[1]["measurement"]

    assert measured.end - measured.start == pytest.approx(1000 / 28.0)
    tfserving_cpu(workload=workload("constant", 28.0), rate=28.0)
    with pytest.raises(InvalidInput, match=r"^rate: 14.0 stands beside a workload .* of 28; leave it out"):
        tfserving_cpu(workload=workload("constant", 28.0), rate=14.0)


def test_a_window_forgets() -> None:
    """What was tried before has no part in a window: only its number, configuration and load count."""
    env = tfserving_cpu(**SHORT)
    env.reset(seed=3)
    env.step(np.int64(0))
    first = env.step(np.int64(400))
    env.reset(seed=3)
    env.step(np.int64(700))
    second = env.step(np.int64(400))

    assert np.array_equal(first[0], second[0])
    assert first[1] == second[1]


def test_same_arrivals_under_every_configuration() -> None:
    """Windows of one number see the same arrivals whatever the configuration."""
    env = tfserving_cpu(**SHORT)
    counts = set()
    for action in (0, 133, 700):
        env.reset(seed=3)
        counts.add(env.step(np.int64(action))[4]["measurement"].requests)

    assert len(counts) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"model": "vgg"},
        {"rate": 0.0},
        {"window": -1.0},
        {"workload": "tsunami"},
        {"episode_windows": 0},
        {"grids": {"colour": (1.0,)}},
        {"grids": {"inter_op": (0.5,)}},
        {"slo": "fast"},
    ],
)
def test_bad_arguments(arguments: dict[str, object]) -> None:
    """An unusable argument is refused at once."""
    with pytest.raises(InvalidInput):
        tfserving_cpu(**arguments)


def test_vector_form_equals_single_ones() -> None:
    """Each environment of the vector form shows what it would show alone, over the end of an episode, too."""
    vector = gym.make_vec(
        NAME, num_envs=3, vectorization_mode="vector_entry_point", episode_windows=2, **SHORT
    )
    singles = [tfserving_cpu(episode_windows=2, **SHORT) for _ in range(3)]
    actions = np.array([[5, 133, 700], [1330, 0, 244], [1, 2, 3], [9, 99, 999]])

    observations, infos = vector.reset(seed=7)
    alone = [env.reset(seed=7 + i) for i, env in enumerate(singles)]
    assert np.array_equal(observations, np.stack([observation for observation, _ in alone]))
    for number, row in enumerate(actions):
        observations, rewards, _, truncated, infos = vector.step(row)
        if number == 2:  # the episodes are over: this step resets
            alone = [env.reset() for env in singles]
            assert rewards.tolist() == [0.0] * 3
        else:
            steps = [env.step(np.int64(action)) for env, action in zip(singles, row, strict=True)]
            alone = [(step[0], step[4]) for step in steps]
            assert rewards.tolist() == [step[1] for step in steps]
            assert truncated.tolist() == [step[3] for step in steps]
        assert np.array_equal(observations, np.stack([observation for observation, _ in alone]))
        assert infos["cost"].tolist() == [info["cost"] for _, info in alone]
        assert infos["measurement"].tolist() == [info["measurement"] for _, info in alone]
    vector.close()


def test_no_environments() -> None:
    """A vector of no environments is refused."""
    with pytest.raises(InvalidInput, match="num_envs"):
        tfserving_cpu_vector(num_envs=0)


def test_expected_costs() -> None:
    """Exact costs are the mean of what windows show, kept on disk, alike for rates that round alike."""
    grids = {"request_parallelism": (1.0, 3.0), "inter_op": (2.0,), "intra_op": (1.0, 5.0)}
    env = tfserving_cpu(grids=grids, window=20.0)

    exact = env.expected_costs(14.0)
    again = tfserving_cpu(grids=grids, window=20.0).expected_costs(14.1)

    seen = np.zeros(4)
    for seed in range(6):
        for action in range(4):
            env.reset(seed=seed)
            seen[action] += float(env.step(np.int64(action))[4]["cost"]) / 6
    assert exact.shape == (4,)
    assert np.array_equal(exact, again)
    assert int(np.argmin(exact)) == 3
    assert seen == pytest.approx(exact, rel=0.25)


def test_expected_costs_of_a_low_rate() -> None:
    """Windows without a request say nothing; where all are like that, the costs are not known."""
    env = tfserving_cpu(grids={"inter_op": (2.0,), "intra_op": (1.0, 5.0)}, window=1.0)

    assert np.isfinite(env.expected_costs(1.0)).all()
    assert np.isnan(env.expected_costs(1e-6)).all()


def test_expected_costs_of_no_rate() -> None:
    """A rate that is none is refused."""
    with pytest.raises(InvalidInput, match="rate"):
        tfserving_cpu(**SHORT).expected_costs(0.0)


def test_change_cost() -> None:
    """A change of the configuration costs the restart, if that is wanted; staying costs nothing more."""
    free, charged = (tfserving_cpu(change_cost=weight, **SHORT) for weight in (0.0, 1.0))
    costs = []
    for env in (free, charged):
        env.reset(seed=1)
        costs.append([env.step(np.int64(400))[4]["cost"] for _ in range(2)])

    assert costs[1][0] > costs[0][0]
    assert costs[1][1] == costs[0][1]


def test_a_whole_setting_says_the_same_as_keywords() -> None:
    """Keywords beside it replace parts of it."""
    objective = Objective(slo=Slo(statistic="p99", latency=0.4), goal="strict", change_cost=0.5)
    whole = Setting(objective=objective, load=Load(rate=10.0, workload="ramp"), window=4.0)
    keywords: dict[str, Any] = {
        "slo": "p99=400ms", "objective": "strict", "change_cost": 0.5, "rate": 10.0, "workload": "ramp"
    }  # fmt: skip

    first, second = gym.make(NAME, setting=whole, window=5.0), gym.make(NAME, **keywords, window=5.0)

    (_, one), (_, other) = first.reset(seed=3), second.reset(seed=3)
    assert one["measurement"] == other["measurement"]
    assert first.unwrapped.objective == second.unwrapped.objective  # type: ignore[attr-defined]
    assert one["measurement"].seconds == 5.0
