"""``tuner/TritonCPU-v0``: a simulated Triton on a CPU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tuner.envs.serving import Levels, Plant, ServingEnv
from tuner.envs.simulator.backend import SimulatedTriton, triton_space
from tuner.envs.simulator.load import RateSchedule
from tuner.envs.simulator.server import ServerModel
from tuner.errors import InvalidInput
from tuner.objective import Objective, Slo, parse_slo
from tuner.profiler.profiler import Profiler

__all__ = ["Rate", "triton_cpu", "virtual_plant"]

Rate = float | tuple[float, float] | RateSchedule
"""Requests/s, a range from which each episode draws its rate (log-uniform), or a schedule."""


def triton_cpu(
    *,
    server: ServerModel | None = None,
    rate: Rate = 200.0,
    slo: str | Slo = "p95=30ms",
    objective: str = "latency",
    change_cost: float = 0.0,
    grids: Mapping[str, tuple[float, ...]] | None = None,
    window: float = 5.0,
    episode_windows: int = 50,
    levels: Levels | None = None,
) -> ServingEnv:
    """Make the environment; every reset starts a new simulated world whose seed the environment draws.

    Args:
        server: What is simulated; by default the demo's model.
        rate: The load.
        slo: Such as ``p95=30ms``.
        objective: ``latency``, ``strict`` or ``cpu``.
        change_cost: Weight of what a change of the configuration costs; 0: nothing.
        grids: Grids that replace the default ones, by knob name.
        window: Length of a window, virtual seconds.
        episode_windows: Steps per episode.
        levels: Names load levels for ``info["level"]``.

    Raises:
        InvalidInput: An argument is unusable.
    """
    model = server or ServerModel()
    bound = parse_slo(slo) if isinstance(slo, str) else slo

    def open_plant(generator: np.random.Generator) -> Plant:
        schedule = _schedule(rate, generator)
        return virtual_plant(
            SimulatedTriton(model, schedule, seed=int(generator.integers(2**62)), grids=grids)
        )

    return ServingEnv(
        open_plant,
        triton_space(model, grids),
        Objective(slo=bound, goal=objective, cores=model.cores, change_cost=change_cost),
        window=window,
        episode_windows=episode_windows,
        levels=levels,
    )


def virtual_plant(backend: SimulatedTriton) -> Plant:
    """Measure a simulated server with the ordinary profiler, in its own time."""
    profiler = Profiler(backend, clock=backend, host=backend, clients=backend)
    return Plant(
        backend=backend,
        measure=lambda seconds, settle: profiler.measure(seconds, settle=settle),
        close=backend.close,
    )


def _schedule(rate: Rate, generator: np.random.Generator) -> RateSchedule:
    if isinstance(rate, RateSchedule):
        return rate
    if isinstance(rate, tuple):
        low, high = rate
        if not 0 < low <= high:
            raise InvalidInput("rate", f"{rate} is not a range of positive rates", "write (100.0, 400.0)")
        return RateSchedule.constant(float(np.exp(generator.uniform(np.log(low), np.log(high)))))
    return RateSchedule.constant(rate)
