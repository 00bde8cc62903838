"""``tuner/Live-v0``: any backend that a target names, with or without requests of our own."""

from __future__ import annotations

from contextlib import ExitStack
from urllib.parse import urlsplit

import numpy as np

from tuner.envs.serving import Levels, Plant, ServingEnv
from tuner.objective import Objective, parse_slo
from tuner.option import keywords, options_of
from tuner.profiler.attachment import attach, attach_for, require_resource
from tuner.setting import Setting

__all__ = ["live"]

OWN = Setting(objective=Objective(slo=parse_slo("p95=30ms")))
"""The setting where the caller gives none."""


@keywords(OWN, *options_of(Objective), "rate", "grids", "window")
def live(
    setting: Setting, *, target: str, episode_windows: int = 50, levels: Levels | None = None
) -> ServingEnv:
    """Make the environment. It connects at once to read the knobs, and again from a reset until ``close``.

    A live server keeps its state over a reset, and no two episodes are alike; closing leaves it with the
    configuration it had. A ``sim://`` target is a new server at each reset, with a seed that the environment
    draws.

    Args:
        setting: What is minimised, and under which load; or its objective, ``rate``, ``grids`` and ``window``
            (5 s by default) by keyword. Without a rate the server's own traffic is watched.
        target: Such as ``triton://127.0.0.1:8001/mlp?metrics=8002``.
        episode_windows: Steps per episode.
        levels: Names load levels for ``info["level"]``.

    Raises:
        InvalidInput: An argument is unusable.
        AdapterError: The server cannot be reached.
    """
    virtual = urlsplit(target).scheme == "sim"
    with attach(target, grids=setting.grids) as attachment:
        require_resource(attachment, setting.objective.goal)
        space, objective = attachment.space, setting.objective_on(attachment.host.cores)

    def open_plant(generator: np.random.Generator) -> Plant:
        seed = int(generator.integers(2**31))
        return _simulated(target, setting, seed) if virtual else _real(target, setting, seed)

    return ServingEnv(
        open_plant,
        space,
        objective,
        window=setting.seconds,
        episode_windows=episode_windows,
        fresh=virtual,
        levels=levels,
    )


def _simulated(target: str, setting: Setting, seed: int) -> Plant:
    from tuner.envs.simulator.backend import connect
    from tuner.envs.triton_cpu import virtual_plant

    backend = connect(target, setting.grids).reseeded(seed)
    if setting.load.nominal is not None:
        backend.set_rate(setting.load.nominal)
    return virtual_plant(backend)


def _real(target: str, setting: Setting, seed: int) -> Plant:
    with ExitStack() as opened:
        attachment = opened.enter_context(attach_for(setting, target, seed=seed))
        opened.callback(attachment.restore)
        close = opened.pop_all().close
        return Plant(backend=attachment.backend, measure=attachment.profiler.measure, close=close)
