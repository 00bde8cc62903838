"""The contract of an environment: a pytest class that every environment over a backend is held to."""

from __future__ import annotations

import math
from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tuner.measurement import Measurement

__all__ = ["EnvironmentContract"]


class EnvironmentContract:
    """Subclass it and override the fixture ``env`` with a newly made environment.

    Set ``reproducible = False`` where the world behind it is real, and two episodes never agree.
    """

    reproducible = True
    steps = 6
    """Windows that each test measures at most."""

    @pytest.fixture
    def env(self) -> Iterator[gym.Env[np.ndarray, np.int64]]:
        """The environment under test; closed afterwards by whoever made it."""
        raise NotImplementedError("override the fixture `env`")

    def test_passes_gymnasiums_checker(self, env: gym.Env[np.ndarray, np.int64]) -> None:
        """Gymnasium's own checker finds nothing to complain about."""
        if not self.reproducible:
            pytest.skip("the checker wants two equal episodes")

        check_env(env.unwrapped, skip_render_check=True)

    def test_observations_are_finite_and_within_bounds(self, env: gym.Env[np.ndarray, np.int64]) -> None:
        """Every observation lies in the space, whatever the configuration."""
        observation, _ = env.reset(seed=1)
        assert env.observation_space.contains(observation)
        for action in self.actions(env):
            observation, *_ = env.step(action)

            assert np.isfinite(observation).all()
            assert env.observation_space.contains(observation)

    def test_rewards_are_finite(self, env: gym.Env[np.ndarray, np.int64]) -> None:
        """Every reward is a finite number, and the cost its negation, or NaN where it is not known."""
        env.reset(seed=2)
        for action in self.actions(env):
            _, reward, terminated, _, info = env.step(action)

            assert math.isfinite(float(reward))
            assert info["cost"] == -float(reward) or math.isnan(info["cost"])
            assert not terminated

    def test_info_tells_what_was_measured(self, env: gym.Env[np.ndarray, np.int64]) -> None:
        """After reset and step the window, the configuration in force and disturbances are in the info."""
        _, first = env.reset(seed=3)
        _, _, _, _, second = env.step(self.actions(env)[0])
        for info in (first, second):
            assert isinstance(info["measurement"], Measurement)
            assert info["configuration"] == info["measurement"].configuration
            assert info["disturbed"] == info["measurement"].disturbed

        assert first["measurement"].end <= second["measurement"].start

    def test_same_seed_same_trajectory(self, env: gym.Env[np.ndarray, np.int64]) -> None:
        """Two episodes with one seed and the same actions agree in every observation and reward."""
        if not self.reproducible:
            pytest.skip("the world behind it is real")
        trajectories = []
        for _ in range(2):
            observation, _ = env.reset(seed=4)
            trajectory = [observation]
            for action in self.actions(env):
                observation, reward, *_ = env.step(action)
                trajectory.append(np.append(observation, float(reward)))
            trajectories.append(np.concatenate(trajectory))

        assert np.array_equal(trajectories[0], trajectories[1])

    def test_closing_twice(self, env: gym.Env[np.ndarray, np.int64]) -> None:
        """Closing twice is harmless, before and after a reset."""
        env.close()
        env.reset(seed=5)
        env.close()
        env.close()

    def actions(self, env: gym.Env[np.ndarray, np.int64]) -> list[np.int64]:
        """Some actions, the first and the last of the space among them."""
        assert isinstance(env.action_space, gym.spaces.Discrete)
        last = int(env.action_space.n) - 1
        return [np.int64(round(last * i / (self.steps - 1))) for i in range(self.steps)]
