"""The base of environments over a batched simulator: episodes, the offered load, exact costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tuner.envs.batched_server import BatchedModel, BatchedServer, measure_servers
from tuner.envs.exact_costs import ExactCosts
from tuner.envs.serving import Levels, Plant, ServingEnv, Window
from tuner.envs.simulator.batched import BatchedSimulator
from tuner.envs.vector import ServingVectorEnv, check_count
from tuner.errors import InvalidInput
from tuner.measurement import Measurement
from tuner.objective import Objective
from tuner.setting import Load, Setting
from tuner.workload import Workload, workload

__all__ = ["BatchedEnv", "batched_env", "batched_vector_env", "check_load", "model_objective"]

REQUESTS = 1000.0
"""Requests of a window at the nominal rate, unless its length is given."""


class BatchedEnv(ServingEnv):
    """An environment over one server of a batched simulator; several environments may share the simulator.

    Each subclass has a data sheet of its own.

    A window depends on the episode's seed, the window's number, the configuration and the load alone.
    ``info["rate"]`` is the load offered in the window just measured.

    Args:
        model: The server that is simulated.
        simulator: Measures its windows.
        load: The offered load; every reset draws the rates of the whole episode.
        setting: The objective, the grids of knobs, and the length of a window.
        episode_windows: Steps per episode.
        levels: Names load levels for ``info["level"]``.
    """

    knows_costs = True

    def __init__(
        self,
        model: BatchedModel,
        simulator: BatchedSimulator,
        load: Workload,
        setting: Setting,
        *,
        episode_windows: int = 50,
        levels: Levels | None = None,
    ) -> None:
        space, objective, window = model.space(setting.grids), setting.objective, setting.seconds
        self.model = model
        self.workload = load
        self.simulator = simulator
        self._setting = setting
        self._server: BatchedServer | None = None
        self._exact = ExactCosts(simulator, space, objective, window)

        def open_plant(generator: np.random.Generator) -> Plant:
            rates = load.rates(episode_windows, generator)
            server = BatchedServer(model, space, rates, int(generator.integers(2**63)))
            self._server = server
            return Plant(
                backend=server,
                measure=lambda seconds, _: measure_servers(simulator, [server], seconds)[0],
                close=server.close,
            )

        super().__init__(
            open_plant, space, objective, window=window, episode_windows=episode_windows, levels=levels
        )

    def sibling(self) -> BatchedEnv:
        """Return another environment like this one, over the same simulator."""
        return type(self)(
            self.model,
            self.simulator,
            self.workload,
            self._setting,
            episode_windows=self._episode_windows,
            levels=self._levels,
        )

    def expected_costs(self, rate: float) -> np.ndarray:  # noqa: D102 - inherited
        return self._exact.at(rate)

    def skip(self, windows: int, configuration: int, level: int | None) -> None:
        """Go on as if some windows had been stepped through.

        A window depends on those before it in three ways only: on how many there were, on the configuration
        of the last one, from which the next is a change, and on its load level, which is kept near the border
        of two levels.

        Args:
            windows: How many, at least 1.
            configuration: The number of the configuration in the last of them.
            level: The load level in the last of them.
        """
        assert self._server is not None, "call reset first"
        self._server.apply(self.space.decode(configuration))
        self._server.skip(windows)
        self._windows += windows
        self._level = level

    def _info(self, measurement: Measurement, cost: float) -> dict[str, Any]:
        assert self._server is not None, "call reset first"
        return super()._info(measurement, cost) | {"rate": self._server.offered}


def batched_env(
    kind: type[BatchedEnv],
    model: BatchedModel,
    setting: Setting,
    *,
    episode_windows: int,
    levels: Levels | None,
) -> BatchedEnv:
    """Make an environment of a kind; what the setting leaves open is the model's own.

    Raises:
        InvalidInput: An argument is unusable.
    """
    check_load(setting.load)
    load = setting.load.workload
    if isinstance(load, str) or load is None:
        load = workload(load or "constant", setting.load.nominal or model.rate)
    own = replace(
        setting,
        objective=model_objective(model, setting.objective),
        window=REQUESTS / load.rate if setting.window is None else setting.window,
    )
    simulator = BatchedSimulator(model.plans(model.space(setting.grids)), model.traffic(load.burstiness))
    return kind(model, simulator, load, own, episode_windows=episode_windows, levels=levels)


def check_load(load: Load) -> None:
    """Check that a load is none of a live server.

    Raises:
        InvalidInput: It has an arrival process, in the place of which simulated servers have a workload.
    """
    if load.arrival is not None:
        fix = "leave it out, and write such as rate=200.0, workload='step'"
        raise InvalidInput("--arrival", "is for requests of our own to a live server", fix)


def model_objective(model: BatchedModel, objective: Objective) -> Objective:
    """Return what is minimised on the machine of a simulated server.

    Raises:
        InvalidInput: The server has no GPU whose use could be minimised.
    """
    if objective.goal == "gpu" and not model.traffic().on_gpu:
        raise InvalidInput(
            "--objective", f"the simulated {model.name} has no GPU", "use latency, strict or cpu"
        )
    return replace(objective, cores=model.cores)


def batched_vector_env(env: BatchedEnv, count: int) -> ServingVectorEnv:
    """Return an environment and others like it in vector form: a step is one call of the simulator.

    Raises:
        InvalidInput: Fewer than one are asked for.
    """
    check_count(count)

    def measure_all(windows: Sequence[Window]) -> list[Measurement]:
        servers = []
        for window in windows:
            assert isinstance(window.plant.backend, BatchedServer), window.plant.backend
            servers.append(window.plant.backend)
        return measure_servers(env.simulator, servers, windows[0].seconds)

    return ServingVectorEnv(
        [env, *(env.sibling() for _ in range(count - 1))], measure_all, env.simulator.close
    )
