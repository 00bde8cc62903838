"""Tests of the environment over the simulated TensorFlow Serving on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tuner.envs.tfserving_gpu import tfserving_gpu
from tuner.errors import InvalidInput
from tuner.testing.environment import EnvironmentContract

NAME = "tuner.envs:tuner/TFServingGPU-v0"
SHORT: dict[str, Any] = {"window": 2.0}


class TestTFServingGPU(EnvironmentContract):
    """The contract of environments."""

    @pytest.fixture
    def env(self) -> Iterator[gym.Env[np.ndarray, np.int64]]:
        env = gym.make(NAME, **SHORT)
        yield env
        env.close()


def test_gpu_objective() -> None:
    """The objective `gpu` costs the share of the GPU's time in use while the SLO is kept."""
    env = tfserving_gpu(objective="gpu", window=10.0)
    env.reset(seed=1)

    action = env.space.encode({"max_batch_size": 8, "batch_timeout": 0.03, "batch_threads": 2})
    *_, info = env.step(np.int64(action))

    assert 0.2 < info["cost"] == info["measurement"].gpu < 1.0


def test_what_is_equal_in_effect_is_no_change() -> None:
    """Batches of 1 wait for nobody, whatever the timeout: a server that runs one has the other."""
    env = tfserving_gpu(change_cost=1.0, window=1.0)
    one, other = (
        env.space.encode({"max_batch_size": 1, "batch_timeout": timeout, "batch_threads": 5})
        for timeout in (0.0, 0.05)
    )
    env.reset(seed=1, options={"configuration": one})

    same, another = (env.step(np.int64(action))[4]["measurement"] for action in (other, one + 1))

    assert same.change_seconds == 0.0 < another.change_seconds


def test_vector_form_equals_single_ones() -> None:
    """Each environment of the vector form shows what it would show alone."""
    vector = gym.make_vec(NAME, num_envs=2, vectorization_mode="vector_entry_point", **SHORT)
    vector.reset(seed=3)
    observations, rewards, *_ = vector.step(np.array([7, 1000]))

    for i, action in enumerate((7, 1000)):
        single = tfserving_gpu(**SHORT)
        single.reset(seed=3 + i)
        observation, reward, *_ = single.step(np.int64(action))
        assert np.array_equal(observation, observations[i])
        assert reward == rewards[i]
    vector.close()


def test_unknown_model() -> None:
    """An unknown model is refused with those there are."""
    with pytest.raises(InvalidInput, match="deepspeech"):
        tfserving_gpu(model="resnet")
