"""Tests of the environment over any target; real servers are in the adapters' own tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tuner.adapters import ApplyReport
from tuner.envs.live import live
from tuner.envs.serving import WORST_REWARD
from tuner.envs.simulator.backend import SimulatedTriton
from tuner.envs.twin import Twin
from tuner.errors import InvalidInput
from tuner.knobs import Configuration
from tuner.objective import Objective, parse_slo
from tuner.profiler.attachment import Attachment, attach
from tuner.setting import Load, Setting
from tuner.testing.environment import EnvironmentContract

NAME = "tuner.envs:tuner/Live-v0"


class TestLiveOverSimulation(EnvironmentContract):
    """The contract of environments, over a simulated target."""

    @pytest.fixture
    def env(self) -> Iterator[gym.Env[np.ndarray, np.int64]]:
        env = gym.make(NAME, target="sim://mlp?rate=150", slo="p99=20ms", objective="cpu", window=2.0)
        yield env
        env.close()


def test_only_a_live_server_is_told_to_repeat_nothing() -> None:
    """Gymnasium's checker heeds that: two episodes of a real server never agree."""
    live_one = gym.make(NAME, target="sim://mlp?rate=150")
    simulated = gym.make("tuner.envs:tuner/TritonCPU-v0")

    assert [env.spec is not None and env.spec.nondeterministic for env in (live_one, simulated)] == [
        True,
        False,
    ]


def test_knobs_and_cores_are_the_targets() -> None:
    """Knobs, grids and cores come from the backend."""
    env = live(target="sim://mlp?cores=3", grids={"max_batch_size": (1, 8)})

    assert env.space.shape == (2, 6, 3)
    assert env.objective.cores == 3


def test_rate_of_a_simulated_target() -> None:
    """A rate replaces the load that the target names."""
    env = live(target="sim://mlp?rate=50", rate=300.0, window=5.0)

    assert env.reset(seed=1)[1]["measurement"].arrival_rate == pytest.approx(300.0, rel=0.15)


def test_a_simulated_target_heeds_the_whole_setting() -> None:
    """A window beside more foreign processes than it allows is disturbed, as in a run."""
    slo = Objective(slo=parse_slo("p95=30ms"))
    found = [
        live(Setting(objective=slo, foreign_limit=limit), target="sim://mlp?foreign=0.5", window=1.0).reset(
            seed=1
        )[1]["disturbed"]
        for limit in (None, 0.2)
    ]

    assert found == [(), ("foreign processes used 0.50 cores (limit 0.2)",)]


def test_a_simulated_target_refuses_what_it_has_by_itself() -> None:
    """Its arrivals, for which the environment is no less strict than a run: it ignored them."""
    bursty = Setting(objective=Objective(slo=parse_slo("p95=30ms")), load=Load(arrival="gamma:0.5:100"))

    with pytest.raises(InvalidInput, match="arrival: a simulated target has its own"):
        live(bursty, target="sim://mlp")


def test_exact_costs_are_not_known_of_a_simulated_target() -> None:
    """It is simulated, and was told to use one that is."""
    with pytest.raises(InvalidInput, match="exact costs are not known; use tuner/TritonCPU-v0, "):
        live(target="sim://mlp").expected_costs(200.0)


def test_least_gpu_use_needs_a_gpu() -> None:
    """A target that shows none is refused at once, as by `tuner run`."""
    with pytest.raises(InvalidInput, match="no GPU can be seen"):
        live(target="sim://mlp", objective="gpu")


def test_bad_rate() -> None:
    """A rate that is not positive is refused at once."""
    with pytest.raises(InvalidInput, match="rate"):
        live(target="sim://mlp", rate=0.0)


def test_closing_restores_and_lets_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is not simulated here stays over resets, gets back what it ran, and is let go of."""
    opened: list[Attachment] = []
    let_go: list[Attachment] = []

    @contextmanager
    def attach_instead(target: str, **settings: Any) -> Iterator[Attachment]:
        settings.pop("seed", None)
        with attach("sim://mlp", **settings) as attachment:
            assert isinstance(attachment.backend, SimulatedTriton)
            hidden = replace(attachment, backend=Twin(attachment.space, attachment.backend))
            opened.append(hidden)
            yield hidden
            let_go.append(attachment)

    for where in ("tuner.envs.live.attach", "tuner.profiler.attachment.attach"):
        monkeypatch.setattr(where, attach_instead)
    env = live(target="triton://127.0.0.1:8001/mlp", rate=100.0, window=1.0)
    env.reset(seed=1)
    env.step(np.int64(40))
    env.reset(seed=2)
    env.step(np.int64(40))
    env.close()

    assert len(opened) == len(let_go) == 2  # once for the knobs, once for the episodes
    assert opened[1].backend.current() == opened[1].original


def test_what_the_server_is_known_to_refuse_ends_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without asking the server, as where that refuses: the action is one of the space."""
    env = live(target="sim://mlp", window=1.0)
    env.reset(seed=1)

    def apply(configuration: Configuration) -> ApplyReport:
        raise InvalidInput("knob max_batch_size", "1 cannot be set", "the server adds batching")

    monkeypatch.setattr(env.backend, "apply", apply)

    _, reward, _, truncated, info = env.step(np.int64(0))

    assert (reward, truncated) == (WORST_REWARD, True)
    assert "1 cannot be set" in info["error"]


@pytest.mark.parametrize("target", ["mlp", "nowhere://x/y", "sim://unknown"])
def test_bad_target(target: str) -> None:
    """A bad target is refused at once."""
    with pytest.raises(InvalidInput):
        live(target=target)
