"""``tuner/Live-v0``: any backend that a target names, with or without a load of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from urllib.parse import urlsplit

import numpy as np

from tuner.envs.serving import Levels, Plant, ServingEnv
from tuner.errors import InvalidInput
from tuner.objective import Objective, Slo, parse_slo
from tuner.profiler.attachment import attach, require_resource

__all__ = ["live"]

Grids = Mapping[str, tuple[float, ...]]


def live(
    *,
    target: str,
    slo: str | Slo = "p95=30ms",
    objective: str = "latency",
    change_cost: float = 0.0,
    rate: float | None = None,
    grids: Grids | None = None,
    window: float = 5.0,
    episode_windows: int = 50,
    levels: Levels | None = None,
) -> ServingEnv:
    """Make the environment. The backend is reached now to learn its knobs, and held from reset to ``close``.

    A live server keeps its state over a reset, and no two episodes agree; closing leaves it with the
    configuration it had. A ``sim://`` target starts anew at each reset, with a seed the environment draws.

    Args:
        target: Such as ``triton://127.0.0.1:8001/mlp?metrics=8002``.
        slo: Such as ``p95=30ms``.
        objective: ``latency``, ``strict``, ``cpu`` or ``gpu``.
        change_cost: Weight of what a change of the configuration costs; 0: nothing.
        rate: Poisson load to drive, requests/s; None to watch the load that is there.
        grids: Grids that replace the adapter's own, by knob name.
        window: Length of a window, s.
        episode_windows: Steps per episode.
        levels: Names load levels for ``info["level"]``.

    Raises:
        InvalidInput: An argument is unusable.
        AdapterError: The server cannot be reached.
    """
    bound = parse_slo(slo) if isinstance(slo, str) else slo
    virtual = urlsplit(target).scheme == "sim"
    if rate is not None and not 0 < rate < float("inf"):
        raise InvalidInput("rate", f"{rate} is not a positive number of requests/s")
    with attach(target, grids=grids) as attachment:
        require_resource(attachment, objective)
        space, cores = attachment.space, attachment.host.cores

    def open_plant(generator: np.random.Generator) -> Plant:
        seed = int(generator.integers(2**31))
        return _simulated(target, grids, rate, seed) if virtual else _real(target, grids, rate, seed)

    return ServingEnv(
        open_plant,
        space,
        Objective(slo=bound, goal=objective, cores=cores, change_cost=change_cost),
        window=window,
        episode_windows=episode_windows,
        fresh=virtual,
        levels=levels,
    )


def _simulated(target: str, grids: Grids | None, rate: float | None, seed: int) -> Plant:
    from tuner.envs.simulator.backend import connect
    from tuner.envs.triton_cpu import virtual_plant

    backend = connect(target, grids or {}).reseeded(seed)
    if rate is not None:
        backend.set_rate(rate)
    return virtual_plant(backend)


def _real(target: str, grids: Grids | None, rate: float | None, seed: int) -> Plant:
    with ExitStack() as opened:
        attachment = opened.enter_context(attach(target, grids=grids, rate=rate, seed=seed))
        opened.callback(attachment.restore)
        profiler = attachment.profiler
        return Plant(
            backend=attachment.backend,
            measure=lambda seconds, settle: profiler.measure(seconds, settle=settle),
            close=opened.pop_all().close,
        )
