"""Anybody's agents train on the environments unchanged: Stable-Baselines3's."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_checker import check_env

IDS = ["tuner/TFServingCPU-v0", "tuner/TFServingGPU-v0", "tuner/TritonCPU-v0", "tuner/Cluster-v0"]
SMALL: dict[str, dict[str, Any]] = {
    "tuner/TFServingCPU-v0": {
        "window": 2.0,
        "grids": dict.fromkeys(("request_parallelism", "inter_op", "intra_op"), (1.0, 4.0)),
    },
    "tuner/TFServingGPU-v0": {"window": 0.5},
    "tuner/TritonCPU-v0": {"window": 0.5},
    "tuner/Cluster-v0": {"window": 0.1},
}
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "sb3.py"


@pytest.fixture(autouse=True)
def _logs_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Stable-Baselines3 makes a folder for logs even where nobody wants any."""
    monkeypatch.setenv("SB3_LOGDIR", str(tmp_path))


def make(name: str) -> gymnasium.Env:
    return gymnasium.make(f"tuner.envs:{name}", episode_windows=5, **SMALL[name])


@pytest.mark.parametrize("name", IDS)
@pytest.mark.compiled
def test_checker_has_nothing_to_complain_about(name: str) -> None:
    """Stable-Baselines3's own."""
    env = make(name)

    check_env(env.unwrapped, warn=True)

    env.close()


@pytest.mark.parametrize("kind", [DQN, PPO])
@pytest.mark.parametrize("name", IDS)
@pytest.mark.compiled
def test_learns_for_some_windows(name: str, kind: type[DQN | PPO]) -> None:
    """Made by `gymnasium.make` and handed over as it is."""
    torch.set_num_threads(1)
    env = make(name)
    options: dict[str, Any] = {"learning_starts": 4} if kind is DQN else {"n_steps": 8, "batch_size": 8}

    model = kind("MlpPolicy", env, seed=0, device="cpu", **options).learn(16)
    action, _ = model.predict(env.reset(seed=0)[0], deterministic=True)
    env.close()

    assert env.action_space.contains(action[()])


@pytest.mark.slow
@pytest.mark.long
def test_example_finds_a_good_configuration() -> None:
    """After 1,500 windows of docs/examples/sb3.py both are far better than chance, one nearly the best."""
    specification = importlib.util.spec_from_file_location("example_sb3", EXAMPLE)
    assert specification is not None
    assert specification.loader is not None
    example = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(example)

    costs = example.main(windows=1500, seed=0)

    assert max(costs["dqn"], costs["ppo"]) < 0.3 * costs["random"]
    assert min(costs["dqn"], costs["ppo"]) < 1.25 * costs["best"]
