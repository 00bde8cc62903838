"""Tests of the environment over the simulated Triton, and of what every serving environment does."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import pytest

from tuner.adapters import ApplyReport, Backend
from tuner.envs import WORST_REWARD, ServingEnv
from tuner.envs.simulator import RateSchedule, ServerModel, triton_space
from tuner.envs.simulator.oracle import exact_costs
from tuner.envs.triton_cpu import triton_cpu
from tuner.errors import InvalidInput, Refused
from tuner.knobs import Configuration
from tuner.objective import Objective, Slo
from tuner.testing.environment import EnvironmentContract

NAME = "tuner.envs:tuner/TritonCPU-v0"


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


def test_best_configuration_earns_most() -> None:
    """Rewards agree with the exact costs: the best configuration earns more than the default."""
    objective = Objective(slo=Slo(statistic="p95", latency=0.03), cores=2.0)
    costs = exact_costs(ServerModel(), triton_space(ServerModel()), 200.0, objective, seconds=20.0)
    env = triton_cpu(window=20.0)
    env.reset(seed=1)

    best, default = (float(env.step(np.int64(action))[1]) for action in (int(np.argmin(costs)), 0))

    assert best > default
    assert -best == pytest.approx(costs.min(), rel=0.2)


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

    def level(self, rate: float, previous: int | None = None) -> int:
        return round(rate / 10)


def test_level() -> None:
    """The load level is told by whoever knows levels."""
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
def test_bad_rate(arguments: dict[str, float]) -> None:
    """A rate that makes no sense is refused at the first reset."""
    with pytest.raises(InvalidInput, match="rate"):
        triton_cpu(**arguments).reset(seed=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments", [{"slo": "fast"}, {"objective": "money"}, {"grids": {"colour": (1.0,)}}]
)
def test_bad_arguments(arguments: dict[str, str]) -> None:
    """A nonsense SLO, objective or grid is refused at once."""
    with pytest.raises(InvalidInput):
        triton_cpu(**arguments)  # type: ignore[arg-type]


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
