"""Tests of the environment over the simulated Triton, and of what every serving environment does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tuner.adapters import ApplyReport, Backend
from tuner.agents import LoadLevels
from tuner.agents.rivals.random_search import RandomSearch
from tuner.agents.training import learn
from tuner.envs import serving
from tuner.envs.serving import WORST_REWARD, ServingEnv
from tuner.envs.simulator.long_window import simulate
from tuner.envs.simulator.server import ServerModel
from tuner.envs.triton_cpu import triton_cpu
from tuner.envs.vector import ServingVectorEnv
from tuner.errors import InvalidInput, Refused
from tuner.knobs import Configuration
from tuner.measurement import Measurement
from tuner.objective import Objective, parse_slo
from tuner.setting import Load, Setting
from tuner.testing.environment import EnvironmentContract
from tuner.workload import workload
from tuner.workload.schedule import RateSchedule

NAME = "tuner.envs:tuner/TritonCPU-v0"
FEW = {"max_batch_size": (1.0, 8.0), "max_queue_delay": (0.0, 0.002)}
"""Grids of 8 configurations."""


class TestTritonCPU(EnvironmentContract):
    """The contract of environments."""

    @pytest.fixture
    def env(self) -> Iterator[gym.Env[np.ndarray, np.int64]]:
        env = gym.make(NAME, window=2.0)
        yield env
        env.close()


def test_episode_is_truncated() -> None:
    """An episode ends after its windows."""
    env = triton_cpu(window=1.0, episode_windows=3)
    env.reset(seed=1)

    ends = [env.step(np.int64(0))[2:4] for _ in range(3)]

    assert ends == [(False, False), (False, False), (False, True)]


def test_start_configuration() -> None:
    """An episode begins with the default configuration, or with the one asked for."""
    env = triton_cpu(window=1.0)

    _, usual = env.reset(seed=1)
    _, chosen = env.reset(seed=1, options={"configuration": 5 * 12})

    assert usual["configuration"] == env.space.default
    assert chosen["configuration"] == env.space.decode(60)


@pytest.mark.compiled
def test_best_configuration_earns_most() -> None:
    """Rewards agree with the exact costs: the best configuration earns more than the default."""
    env = triton_cpu(window=5.0, grids=FEW)
    costs = env.expected_costs(200.0)
    env.reset(seed=1)

    best, default = (float(env.step(np.int64(action))[1]) for action in (int(np.argmin(costs)), 0))

    assert best > default
    assert -best == pytest.approx(costs.min(), rel=0.3)


def test_rates_drawn_from_a_range() -> None:
    """With a range of rates every episode draws its own."""
    env = triton_cpu(rate=(50.0, 400.0), window=5.0)

    rates = [env.reset(seed=seed)[1]["measurement"].arrival_rate for seed in range(6)]

    assert min(rates) > 40
    assert max(rates) < 450
    assert max(rates) > 1.5 * min(rates)


def test_schedule_changes_the_load() -> None:
    """A schedule changes the load in the middle of an episode."""
    env = triton_cpu(rate=RateSchedule(steps=((0.0, 50.0), (8.0, 300.0))), window=5.0)
    _, first = env.reset(seed=1)
    env.step(np.int64(40))
    *_, third = env.step(np.int64(40))

    assert first["measurement"].arrival_rate < 80
    assert third["measurement"].arrival_rate > 250


class Tens:
    """Load levels of ten requests/s."""

    def level(self, rate: float, previous: int | None = None, *, foreign: float = math.nan) -> int:
        return round(rate / 10)


def test_level() -> None:
    """The load level comes from the levels that the environment was given."""
    env = triton_cpu(window=5.0, levels=Tens())

    assert env.reset(seed=1)[1]["level"] == pytest.approx(20, abs=2)


def test_nothing_asked() -> None:
    """A window without requests earns 0, and its observation says that nothing is known."""
    env = triton_cpu(rate=RateSchedule(steps=((0.0, 0.0), (1e6, 1.0))), window=1.0)
    observation, _ = env.reset(seed=1)

    _, reward, *_ = env.step(np.int64(0))

    assert reward == 0.0
    assert observation[:3].tolist() == [0.0, -1.0, -1.0]


@pytest.mark.parametrize("arguments", [{"rate": 0.0}, {"rate": (0.0, 5.0)}])
def test_bad_rate(arguments: dict[str, Any]) -> None:
    """A rate that makes no sense is refused at the first reset."""
    with pytest.raises(InvalidInput, match="rate"):
        triton_cpu(**arguments).reset(seed=1)


@pytest.mark.parametrize(
    "arguments",
    [{"slo": "fast"}, {"objective": "money"}, {"grids": {"colour": (1.0,)}}, {"episode_windows": 0}],
)
def test_bad_arguments(arguments: dict[str, Any]) -> None:
    """A nonsense SLO, objective or grid is refused at once."""
    with pytest.raises(InvalidInput):
        triton_cpu(**arguments)


def test_failing_backend_truncates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that fails ends the episode: truncated, the worst reward, and the reason."""
    env = triton_cpu(window=1.0)
    observation, first = env.reset(seed=1)
    refuse(env, monkeypatch)

    seen, reward, terminated, truncated, info = env.step(np.int64(3))

    assert (reward, terminated, truncated) == (WORST_REWARD, False, True)
    assert "out of memory" in info["error"]
    assert info["measurement"] == first["measurement"]
    assert np.array_equal(seen, observation)
    assert not np.shares_memory(seen, observation)  # whoever changes the one in place keeps the other


def refuse(env: ServingEnv, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """Make the backend refuse every configuration."""

    def apply(configuration: Configuration) -> ApplyReport:
        raise Refused("out of memory")

    assert env.backend is not None
    monkeypatch.setattr(env.backend, "apply", apply)
    return env.backend


def test_changes_cost_where_that_is_wanted() -> None:
    """The same episode with and without: the window after a change costs so much more, the next one not."""
    charged, free = triton_cpu(window=2.0, change_cost=1.0), triton_cpu(window=2.0)
    for env in (charged, free):
        env.reset(seed=1, options={"configuration": 60})
    for action, extra in ((40, True), (40, False), (60, True)):
        _, _, _, _, info = charged.step(np.int64(action))
        _, _, _, _, plain = free.step(np.int64(action))
        m = info["measurement"]
        waiting = m.change_seconds * m.change_requests / (m.requests + m.failures)

        assert (m.change_seconds > 0) == extra
        assert info["cost"] == pytest.approx(plain["cost"] + waiting / 0.030)


def test_exact_costs() -> None:
    """Costs are finite, and equal for configurations equal in effect; no batching is worst."""
    env = triton_cpu(window=1.0, grids=FEW)

    costs = env.expected_costs(250.0)

    assert env.knows_costs
    assert np.isfinite(costs).all()
    assert np.ptp(costs.reshape(env.space.shape)[0], axis=0) == pytest.approx([0.0, 0.0])
    assert np.argmax(costs) == 0
    assert costs.min() < 0.6
    costs[:] = 0.0
    assert env.expected_costs(250.0).min() > 0.0  # whoever changes what came back changes nothing else


def test_a_server_of_its_own_for_every_window() -> None:
    """Without carrying over, a window shows what a long one on a fresh server does, and forgets overload."""
    env = triton_cpu(carry_over=False, rate=250.0, window=40.0)
    good = env.space.encode({"max_batch_size": 8, "max_queue_delay": 0.002, "instances": 2})
    env.reset(seed=1)
    env.step(np.int64(0))

    seen = env.step(np.int64(good))[4]["measurement"]

    expected = simulate(ServerModel(), seen.configuration, 250.0, seconds=40.0)
    for name in ("latency_mean", "latency_p95", "queue_mean", "compute_mean", "batch_mean", "cpu"):
        assert getattr(seen, name) == pytest.approx(getattr(expected, name), rel=0.1), name


@pytest.mark.parametrize("carry_over", [True, False])
def test_workload(carry_over: bool) -> None:
    """A workload gives every window its load, the reset's window that of the first."""
    env = triton_cpu(
        workload="step:low=0.5,high=1.5,at=0.5", episode_windows=4, window=5.0, carry_over=carry_over
    )

    told = [env.reset(seed=1)[1]]
    told += [env.step(np.int64(70))[4] for _ in range(4)]

    assert [info["rate"] for info in told] == pytest.approx([100.0, 100.0, 100.0, 300.0, 300.0])
    for info in told:
        assert info["measurement"].arrival_rate == pytest.approx(info["rate"], rel=0.25)


@pytest.mark.parametrize("carry_over", [True, False])
def test_a_workload_may_have_a_rate_of_its_own(carry_over: bool) -> None:
    """The default one is not given, so it is in nobody's way; one that is given must be the same."""
    arguments: dict[str, Any] = {"workload": workload("constant", 150.0), "carry_over": carry_over}
    env = triton_cpu(window=0.5, **arguments)

    assert env.reset(seed=1)[1]["rate"] == 150.0
    for rate in (200.0, (100.0, 200.0), RateSchedule.constant(150.0)):
        with pytest.raises(
            InvalidInput, match=r"^rate: .* stands beside a workload with a nominal rate of 150"
        ):
            triton_cpu(rate=rate, **arguments)


@pytest.mark.parametrize("carry_over", [True, False])
def test_a_setting_that_leaves_the_window_open(carry_over: bool) -> None:
    """It has five seconds, as without a setting, and not those of a thousand requests."""
    setting = Setting(objective=Objective(slo=parse_slo("p95=30ms")), load=Load(rate=50.0))

    _, info = triton_cpu(setting, carry_over=carry_over).reset(seed=1)

    assert info["measurement"].seconds == pytest.approx(5.0)


def test_rates_drawn_from_a_range_without_carrying_over() -> None:
    """Here, too, every episode draws its own rate of a range."""
    env = triton_cpu(rate=(50.0, 400.0), window=1.0, carry_over=False)

    rates = [env.reset(seed=seed)[1]["rate"] for seed in range(6)]

    assert 50.0 <= min(rates) < 0.6 * max(rates) <= 0.6 * 400.0


@pytest.mark.parametrize("carry_over", [True, False])
def test_vector_form_equals_single_ones(carry_over: bool) -> None:
    """Each environment of the vector form shows what it would show alone."""
    arguments: dict[str, Any] = {"window": 1.0, "carry_over": carry_over}
    vector = gym.make_vec(NAME, num_envs=2, vectorization_mode="vector_entry_point", **arguments)
    vector.reset(seed=3)
    for _ in range(2):
        observations, rewards, *_ = vector.step(np.array([7, 40]))

    for i, action in enumerate((7, 40)):
        single = triton_cpu(**arguments)
        single.reset(seed=3 + i)
        for _ in range(2):
            observation, reward, *_ = single.step(np.int64(action))
        assert np.array_equal(observation, observations[i])
        assert reward == rewards[i]
    vector.close()


def test_schedule_without_carrying_over() -> None:
    """A schedule in virtual time means nothing to servers that do not live on."""
    with pytest.raises(InvalidInput, match="workload"):
        triton_cpu(rate=RateSchedule.constant(5.0), carry_over=False)


def test_failure_in_vector_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that fails ends its own episode; the others go on, and it begins again in the next step."""
    vector = gym.make_vec(NAME, num_envs=2, vectorization_mode="vector_entry_point", window=1.0)
    vector.reset(seed=3)
    assert isinstance(vector, ServingVectorEnv)
    refuse(vector.envs[0], monkeypatch)

    _, rewards, _, truncated, infos = vector.step(np.array([7, 40]))
    _, after, _, again, _ = vector.step(np.array([7, 40]))

    assert rewards[0] == WORST_REWARD < rewards[1]
    assert truncated.tolist() == [True, False]
    assert infos["_error"].tolist() == [True, False]
    assert after[0] == 0.0
    assert again.tolist() == [False, False]


def test_failure_in_a_reset_of_the_vector_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that fails in the window of such a reset ends the new episode; the others go on."""
    vector = gym.make_vec(NAME, num_envs=2, vectorization_mode="vector_entry_point", window=1.0)
    vector.reset(seed=3)
    assert isinstance(vector, ServingVectorEnv)
    first = vector.envs[0]
    refuse(first, monkeypatch)
    vector.step(np.array([7, 40]))

    def measure(window: serving.Window) -> Measurement:
        if window.plant.backend is first.backend:
            raise Refused("out of memory")
        return serving.measure(window)

    with monkeypatch.context() as patch:
        patch.setattr("tuner.envs.vector.measure", measure)
        _, rewards, _, truncated, infos = vector.step(np.array([7, 40]))
    _, after, _, again, _ = vector.step(np.array([7, 40]))

    assert rewards[0] == WORST_REWARD < rewards[1]
    assert truncated.tolist() == [True, False]
    assert infos["error"].tolist() == ["out of memory", None]
    assert after[0] == 0.0
    assert again.tolist() == [False, False]


@pytest.mark.parametrize("p95", [math.nan, math.inf])
def test_what_is_not_measured_is_not_learned_from(monkeypatch: pytest.MonkeyPatch, p95: float) -> None:
    """The reward of such a window is -50, its cost unknown; training skips and counts it."""
    real = serving.measure
    numbers = itertools.count()

    def measure(window: serving.Window) -> Measurement:
        measured = real(window)
        return replace(measured, latency_p95=p95) if next(numbers) % 3 == 2 else measured

    monkeypatch.setattr(serving, "measure", measure)
    env = triton_cpu(window=0.5, grids=FEW, levels=LoadLevels())
    env.reset(seed=1)
    steps = [env.step(np.int64(0)) for _ in range(3)]

    history = learn(env, RandomSearch(env.space), 6, seed=1)

    assert [step[1] == WORST_REWARD for step in steps] == [False, True, False]
    assert [math.isnan(step[4]["cost"]) for step in steps] == [False, True, False]
    assert all(math.isnan(window.cost) != window.learned for window in history)
    assert sum(not window.learned for window in history) == 2


def test_a_window_without_any_answer_is_the_worst() -> None:
    """Something was asked and nothing answered: that is the server's doing, and is learned."""
    env = triton_cpu(window=0.5, grids=FEW)
    _, info = env.reset(seed=1)

    silent = replace(info["measurement"], requests=0, latency_p95=math.nan)
    _, reward, _, _, told = env.end_step(silent)

    assert (reward, told["cost"]) == (WORST_REWARD, -WORST_REWARD)


@pytest.mark.parametrize("carry_over", [True, False])
def test_least_gpu_use_needs_a_gpu(carry_over: bool) -> None:
    """A server without one is refused at once, as on a real machine."""
    with pytest.raises(InvalidInput, match="the simulated mlp has no GPU"):
        triton_cpu(objective="gpu", carry_over=carry_over)
