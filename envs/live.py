"""``tuner/Live-v0``: any backend that a target names, with or without requests of our own."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Protocol, cast, runtime_checkable

import numpy as np

from tuner.adapters import Backend, connect
from tuner.envs.making import makes_environments
from tuner.envs.serving import Levels, Plant, ServingEnv, Window
from tuner.errors import InvalidInput, Refused
from tuner.objective import Objective, parse_slo
from tuner.option import keywords, options_of
from tuner.profiler.attachment import Simulated, attach, attach_for, require_resource
from tuner.profiler.profiler import Profiler
from tuner.profiler.window import Limits
from tuner.setting import Setting

__all__ = ["LiveEnv", "live"]

OWN = Setting(objective=Objective(slo=parse_slo("p95=30ms")))
"""The setting where the caller gives none."""


class _World(Backend, Simulated, Protocol):
    """A backend in virtual time."""


@runtime_checkable
class _Reseedable(Protocol):
    def reseeded(self, seed: int) -> _World:
        """Return the same server at time 0, with other random numbers."""
        ...


class LiveEnv(ServingEnv):
    """Any backend that a target names: see :func:`live`.

    Actions, observations, rewards and the rest are those of :class:`~tuner.envs.serving.ServingEnv`; the use
    of the GPUs is the observation's entry 8.
    """

    observes_gpu = True

    def _apply(self, number: int) -> Window:
        try:
            return super()._apply(number)
        except InvalidInput as error:  # a configuration of ours that the server is known to refuse
            raise Refused(str(error)) from error


@makes_environments
@keywords(OWN, *options_of(Objective), "rate", "grids", "window")
def live(
    setting: Setting, *, target: str, episode_windows: int = 50, levels: Levels | None = None
) -> LiveEnv:
    """Make the environment. It connects at once to read the knobs, and again from a reset until ``close``.

    A live server keeps its state over a reset, and no two episodes are alike; gymnasium is told so
    (``nondeterministic``), whatever the target. Closing leaves the server with the configuration it had. A
    simulated target, such as ``sim://mlp``, is a new server at each reset, with a
    seed that the environment draws if the adapter has ``reseeded(seed)``.

    Args:
        setting: What is minimised, and under which load; or its objective, ``rate``, ``grids`` and ``window``
            (5 s by default) by keyword. Without a rate the server's own traffic is watched.
        target: Such as ``triton://127.0.0.1:8001/mlp?metrics=8002``.
        episode_windows: Steps per episode.
        levels: Names load levels for ``info["level"]``.

    Raises:
        InvalidInput: An argument is unusable, or means nothing for a simulated target.
        AdapterError: The server cannot be reached.
    """
    with attach(target, grids=setting.grids) as attachment:
        require_resource(attachment, setting.objective.goal)
        space, objective = attachment.space, setting.objective_on(attachment.host.cores)
        virtual = attachment.simulated
    if virtual:
        with attach_for(setting, target):
            pass  # refuses what a simulated target has by itself, such as arrivals

    def open_plant(generator: np.random.Generator) -> Plant:
        seed = int(generator.integers(2**31))
        return _simulated(target, setting, seed) if virtual else _real(target, setting, seed)

    return LiveEnv(
        open_plant,
        space,
        objective,
        window=setting.seconds,
        episode_windows=episode_windows,
        fresh=virtual,
        levels=levels,
    )


def _simulated(target: str, setting: Setting, seed: int) -> Plant:
    backend = connect(target, setting.grids)
    world = backend.reseeded(seed) if isinstance(backend, _Reseedable) else cast(_World, backend)
    if setting.load.nominal is not None:
        world.set_rate(setting.load.nominal)
    limits = Limits(foreign=math.inf if setting.foreign_limit is None else setting.foreign_limit)
    profiler = Profiler(world, clock=world, host=world, clients=world, limits=limits)
    return Plant(backend=world, measure=profiler.measure, close=world.close)


def _real(target: str, setting: Setting, seed: int) -> Plant:
    with ExitStack() as opened:
        attachment = opened.enter_context(attach_for(setting, target, seed=seed))
        opened.callback(attachment.restore)
        close = opened.pop_all().close
        return Plant(backend=attachment.backend, measure=attachment.profiler.measure, close=close)
