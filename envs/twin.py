"""A simulated twin of a live server: the server's own knobs, in front of the simulated batcher.

The batchers of Triton and of TensorFlow Serving do the same under different names. The twin looks at the
roles of the knobs, not at their names, so one simulation stands for both:

==============  ====================  ============================================
role            simulated knob        where no knob has the role
==============  ====================  ============================================
batch           max_batch_size        there is no twin
delay           max_queue_delay       0
parallelism     instances             what the server is known to do by itself, else 1
==============  ====================  ============================================

A parallelism of 0 stands for as many as there are cores. A delay beyond the longest of a simulated server is
simulated as that. A batch of 0, which leaves the limit to the server, cannot be simulated. Knobs with another
role have no effect on the twin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tuner.adapters import ApplyReport, Counters, Description
from tuner.envs.serving import Levels, Plant, ServingEnv
from tuner.envs.simulator.backend import (
    DELAY,
    INSTANCES,
    LONGEST_DELAY,
    MAX_BATCH,
    MOST_INSTANCES,
    SimulatedTriton,
)
from tuner.envs.simulator.server import ServerModel
from tuner.envs.triton_cpu import virtual_plant
from tuner.errors import InvalidInput
from tuner.knobs import Configuration, KnobSpace, Role
from tuner.objective import Objective
from tuner.profile import BatchingProfile
from tuner.workload.schedule import RateSchedule

__all__ = ["Twin", "as_simulated", "twin_env"]


def as_simulated(space: KnobSpace, configuration: Mapping[str, float], cores: float) -> Configuration:
    """Return a live configuration with the simulator's names.

    Args:
        space: The live server's knobs.
        configuration: A value for each of them.
        cores: CPU cores of the server's machine.

    Raises:
        InvalidInput: No knob has the role *batch*, or it leaves the limit to the server.
    """
    batch = space.value_of(Role.BATCH, configuration)
    if batch is None:
        known = ", ".join(space.names) or "none"
        raise InvalidInput(
            "TARGET", "no knob limits its batches, so it cannot be simulated", f"knobs: {known}"
        )
    if batch < 1:  # such as the 0 of a dispatcher's `batch_cap`
        knob = space.with_role(Role.BATCH)
        name = Role.BATCH.value if knob is None else knob.name
        raise InvalidInput(
            "TARGET",
            f"{name}={batch:g} leaves the limit of its batches to the server, so it cannot be simulated",
            f"give it a grid without that value: --knob {name}=1,4,16",
        )
    parallel = space.value_of(Role.PARALLELISM, configuration)
    return Configuration(
        {
            MAX_BATCH: batch,
            DELAY: min(space.value_of(Role.DELAY, configuration) or 0.0, LONGEST_DELAY),
            INSTANCES: 1.0 if parallel is None else min(parallel or max(int(cores), 1), MOST_INSTANCES),
        }
    )


class Twin:
    """A simulated backend with a live server's knobs.

    Args:
        space: The live server's knobs.
        simulated: The simulated backend.
    """

    def __init__(self, space: KnobSpace, simulated: SimulatedTriton) -> None:
        self.space = space
        self._simulated = simulated
        self._running = space.effective(space.default)
        simulated.apply(as_simulated(space, self._running, simulated.cores))

    def describe(self) -> Description:
        """Describe the simulated server."""
        return self._simulated.describe()

    def current(self) -> Configuration:
        """Return what it runs."""
        return self._running

    def apply(self, configuration: Configuration) -> ApplyReport:
        """Change the configuration; knobs without effect on the simulation cost nothing."""
        self.space.check_complete(configuration)
        wanted = self.space.effective(configuration)
        report = self._simulated.apply(as_simulated(self.space, wanted, self._simulated.cores))
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
        # The simulation takes no batches beyond its own grid, so it gets the live server's.
        largest = {MAX_BATCH: batch.grid} if (batch := space.with_role(Role.BATCH)) is not None else None
        simulated = SimulatedTriton(server, RateSchedule.constant(rate), seed=seed, grids=largest)
        return virtual_plant(simulated, Twin(space, simulated))

    return ServingEnv(
        open_plant, space, objective, window=window, episode_windows=episode_windows, levels=levels
    )
