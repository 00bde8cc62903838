"""A simulated twin of a live server: the server's own knobs, in front of the simulated batcher.

The batchers of Triton and of TensorFlow Serving do the same under different names, so one simulation stands
for both:

==================  =====================  ==========================================
simulated           Triton                 TensorFlow Serving
==================  =====================  ==========================================
max_batch_size      max_batch_size         max_batch_size
max_queue_delay     max_queue_delay        batch_timeout
instances           instances              batch_threads; as many as cores if it is 0
                                           or no knob
==================  =====================  ==========================================

Other knobs have no effect on the twin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from tuner.adapters import ApplyReport, Counters, Description
from tuner.envs.serving import Levels, Plant, ServingEnv
from tuner.envs.simulator.backend import DELAY, INSTANCES, MAX_BATCH, SimulatedTriton
from tuner.envs.simulator.server import ServerModel
from tuner.knobs import Configuration, KnobSpace
from tuner.measurement import Measurement
from tuner.objective import Objective
from tuner.profile import BatchingProfile
from tuner.profiler.profiler import Profiler
from tuner.workload.load import RateSchedule

__all__ = ["Twin", "as_simulated", "missing_knob", "shown", "twin_env"]

TIMEOUT = "batch_timeout"
THREADS = "batch_threads"
SHOWN = (MAX_BATCH, DELAY, INSTANCES, TIMEOUT, THREADS)


def missing_knob(names: Iterable[str]) -> str | None:
    """Return the knob without which a server has no twin, None if it has one."""
    names = set(names)
    if MAX_BATCH not in names:
        return MAX_BATCH
    if TIMEOUT in names or {DELAY, INSTANCES} <= names:
        return None
    return DELAY if DELAY not in names else INSTANCES


def shown(names: Iterable[str]) -> list[str]:
    """Return those of some knobs that have an effect on the twin."""
    return [name for name in names if name in SHOWN]


def as_simulated(configuration: Mapping[str, float], cores: float) -> Configuration:
    """Return a live configuration as the simulator knows it.

    Args:
        configuration: With the server's own names.
        cores: CPU cores of the server's machine.
    """
    parallel = configuration.get(INSTANCES) or configuration.get(THREADS) or max(int(cores), 1)
    return Configuration(
        {
            MAX_BATCH: configuration[MAX_BATCH],
            DELAY: configuration.get(DELAY, configuration.get(TIMEOUT, 0.0)),
            INSTANCES: parallel if TIMEOUT in configuration or INSTANCES in configuration else 1.0,
        }
    )


class Twin:
    """A simulated backend with a live server's knobs.

    Args:
        space: The live server's.
        simulated: The simulation.
    """

    def __init__(self, space: KnobSpace, simulated: SimulatedTriton) -> None:
        self.space = space
        self._simulated = simulated
        self._running = space.effective(space.default)
        simulated.apply(as_simulated(self._running, simulated.cores))

    def describe(self) -> Description:
        """Return who this is."""
        return self._simulated.describe()

    def current(self) -> Configuration:
        """Return what it runs."""
        return self._running

    def apply(self, configuration: Configuration) -> ApplyReport:
        """Change the configuration; knobs without effect on the simulation cost nothing."""
        self.space.check_complete(configuration)
        wanted = self.space.effective(configuration)
        report = self._simulated.apply(as_simulated(wanted, self._simulated.cores))
        changed, self._running = wanted != self._running, wanted
        return replace(report, configuration=wanted, changed=changed)

    def counters(self) -> Counters:
        """Read the totals."""
        return self._simulated.counters()

    def profile(self) -> BatchingProfile | None:
        """Return l(b) over everything seen."""
        return self._simulated.profile()

    def close(self) -> None:
        """Let go of nothing."""
        self._simulated.close()


def twin_env(
    server: ServerModel,
    space: KnobSpace,
    objective: Objective,
    *,
    rate: float,
    window: float,
    episode_windows: int,
    levels: Levels | None = None,
) -> ServingEnv:
    """Make an environment in which an agent learns for a live server before it touches it.

    Args:
        server: A model of the live server.
        space: The live server's knobs.
        objective: What to minimise.
        rate: The load, requests/s.
        window: Length of a window, virtual s.
        episode_windows: Steps per episode.
        levels: Names load levels.
    """

    def open_plant(generator: np.random.Generator) -> Plant:
        seed = int(generator.integers(2**62))
        largest = {MAX_BATCH: _grid(space, MAX_BATCH)}
        simulated = SimulatedTriton(server, RateSchedule.constant(rate), seed=seed, grids=largest)
        twin = Twin(space, simulated)
        profiler = Profiler(twin, clock=simulated, host=simulated, clients=simulated)

        def measure(seconds: float, settle: float) -> Measurement:
            return profiler.measure(seconds, settle=settle)

        return Plant(backend=twin, measure=measure, close=twin.close)

    return ServingEnv(
        open_plant, space, objective, window=window, episode_windows=episode_windows, levels=levels
    )


def _grid(space: KnobSpace, name: str) -> tuple[float, ...]:
    return next(knob.grid for knob in space.knobs if knob.name == name)
