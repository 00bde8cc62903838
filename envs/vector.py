"""Vector form of the environments: many in one object, measured at once, each as if it were alone."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from tuner.envs.serving import Remade, ServingEnv, Window, measure
from tuner.errors import AdapterError, InvalidInput
from tuner.measurement import Measurement

__all__ = ["MeasureInThreads", "ServingVectorEnv", "check_count", "measure_each"]

Measured = Measurement | AdapterError
"""What was measured, or why it could not be."""


class ServingVectorEnv(Remade, gym.vector.VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Environments side by side: the same observations, rewards and infos as of each alone.

    Where an episode ended, the next step resets that environment and ignores its action (gymnasium's
    ``NEXT_STEP``). A backend that fails in that reset ends the new episode as in any other step, and the step
    after it resets again. Infos are arrays with one entry per environment, and ``_name`` says which
    environments have one; ``configuration``, ``measurement`` and ``disturbed`` are arrays of objects.

    Args:
        envs: At least one, of one kind.
        measure_all: Measures the windows of all of them at once.
        close_all: Closes what they share.
    """

    metadata: dict[str, Any] = {**ServingEnv.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as gymnasium declares it

    def __init__(
        self,
        envs: Sequence[ServingEnv],
        measure_all: Callable[[Sequence[Window]], Sequence[Measured]],
        close_all: Callable[[], None] = lambda: None,
    ) -> None:
        self.envs = tuple(envs)
        self.num_envs = len(self.envs)
        self.single_observation_space = envs[0].observation_space
        self.single_action_space = envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._measure_all = measure_all
        self._close_all = close_all
        self._ended = np.zeros(self.num_envs, np.bool_)

    @property
    def space(self) -> Any:
        """The knobs."""
        return self.envs[0].space

    @property
    def objective(self) -> Any:
        """What is minimised."""
        return self.envs[0].objective

    def expected_costs(self, rate: float) -> np.ndarray:
        """Return the exact costs, as of each environment alone.   # (size,)."""
        return self.envs[0].expected_costs(rate)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode everywhere.

        Args:
            seed: One per environment; a single number is the first one's, and the others count up from it.
            options: The same for every environment.

        Raises:
            InvalidInput: There are more or fewer seeds than environments, or there is no such configuration.
            AdapterError: A backend cannot be reached or refuses the first configuration.
        """
        seeds: list[int | None]
        if seed is None:
            seeds = [None] * self.num_envs
        elif isinstance(seed, int | np.integer):
            seeds = [int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = [None if one is None else operator.index(one) for one in seed]
        if len(seeds) != self.num_envs:
            raise InvalidInput("seed", f"{len(seeds)} are given for {self.num_envs} environments")
        self.closed = False  # what gymnasium takes for closed it does not close
        windows = [
            env.begin_reset(seed=one, options=options) for env, one in zip(self.envs, seeds, strict=True)
        ]
        self._ended[:] = False
        begun = [
            env.end_reset(_measurement(measured))
            for env, measured in zip(self.envs, self._measure_all(windows), strict=True)
        ]
        observations, infos = zip(*begun, strict=True)
        return np.stack(observations), _merge(infos)

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Run one window everywhere.

        Raises:
            InvalidInput: There are more or fewer actions than environments, or one is not the number of a
                configuration; nothing is applied anywhere.
        """
        if len(actions) != self.num_envs:
            raise InvalidInput("actions", f"{len(actions)} are given for {self.num_envs} environments")
        for env, action, ended in zip(self.envs, actions, self._ended, strict=True):
            if not ended:
                env.number_of(action)
        rows: list[Any] = [None] * self.num_envs
        waiting: list[tuple[int, Window]] = []
        for i, env in enumerate(self.envs):
            try:
                waiting.append((i, env.begin_reset() if self._ended[i] else env.begin_step(actions[i])))
            except AdapterError as error:
                rows[i] = env.fail_step(error)
        measured = self._measure_all([window for _, window in waiting]) if waiting else []
        for (i, _), one in zip(waiting, measured, strict=True):
            env = self.envs[i]
            if isinstance(one, AdapterError):
                rows[i] = env.fail_step(one)
            elif self._ended[i]:
                observation, info = env.end_reset(one)
                rows[i] = observation, 0.0, False, False, info
            else:
                rows[i] = env.end_step(one)
        observations, rewards, terminated, truncated, infos = zip(*rows, strict=True)
        self._ended = np.array(terminated) | np.array(truncated)
        return (
            np.stack(observations),
            np.array(rewards),
            np.array(terminated),
            np.array(truncated),
            _merge(infos),
        )

    def render_as(self, mode: str | None) -> None:
        """Let :meth:`render` answer in a mode, each environment by itself."""
        super().render_as(mode)
        for env in self.envs:
            env.render_as(mode)

    def render(self) -> tuple[Any, ...] | None:
        """Return what each environment renders; None without a mode."""
        return None if self.render_mode is None else tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002 - gymnasium's signature
        """Close every environment."""
        for env in self.envs:
            env.close()
        self._ended[:] = False  # else the next step would begin episodes, and nobody closed them
        self._close_all()


def check_count(num_envs: int) -> None:
    """Check how many environments are asked for.

    Raises:
        InvalidInput: Fewer than one.
    """
    if num_envs < 1:
        raise InvalidInput("num_envs", f"{num_envs} is not at least 1")


def measure_each(windows: Sequence[Window]) -> list[Measured]:
    """Measure windows one after the other."""
    return [_measure(window) for window in windows]


class MeasureInThreads:
    """Measures windows in threads, which saves time where compiled code releases the interpreter's lock."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def __call__(self, windows: Sequence[Window]) -> list[Measured]:
        """Measure."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)), "windows")
        return list(self._pool.map(_measure, windows))

    def close(self) -> None:
        """End the threads. May be called twice; a later call starts them again."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()


def _measure(window: Window) -> Measured:
    try:
        return measure(window)
    except AdapterError as error:
        return error


def _measurement(measured: Measured) -> Measurement:
    if isinstance(measured, AdapterError):
        raise measured
    return measured


def _merge(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one array per name, and under ``_name`` which environments have it."""
    merged: dict[str, Any] = {}
    for name in dict.fromkeys(name for info in infos for name in info):
        has = np.array([name in info for info in infos])
        values = [info.get(name) for info in infos]
        known = next(value for value in values if value is not None)
        if isinstance(known, (int, float)):
            array = np.array([0 if value is None else value for value in values])
        else:
            array = np.empty(len(values), dtype=object)
            array[:] = values
        merged[name], merged[f"_{name}"] = array, has
    return merged
