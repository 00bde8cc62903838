"""The base of models of a simulated TensorFlow Serving: its load, threads, requests and knobs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tuner.adapters.live.knobs import KnobKind
from tuner.envs.simulator.batched import Traffic
from tuner.envs.simulator.model_file import ModelFile
from tuner.errors import InvalidInput
from tuner.knobs import Knob, KnobSpace, Role

__all__ = ["TFServingModel"]

THREADS = KnobKind(least=0, most=64)
LIMITS = {Role.BATCH: KnobKind(least=1, most=1024), Role.DELAY: KnobKind(least=0, most=10.0, whole=False)}
"""What can be simulated, by the role of the knob; with another role it is a number of threads."""


@dataclass(frozen=True, kw_only=True)
class TFServingModel(ModelFile):
    """Base of :class:`~.tfserving_cpu.TFServingCPU` and :class:`~.tfserving_gpu.TFServingGPU`.

    Both give most constants values of their own.
    """

    knobs: ClassVar[tuple[Knob, ...]]
    """The knobs with their usual grids."""

    kind: str
    """What server it describes."""
    name: str = "inception"
    """The model's name."""
    rate: float
    """The load it is meant for, requests/s."""
    cores: float = 10.0
    """CPU cores of the machine."""
    auto: int = 20
    """Threads that a knob at 0 stands for: as many as the machine shows cores (two threads each)."""
    noise: float
    """Sigma of the lognormal factor (of mean 1) on each execution."""
    sizes: float = 0.0
    """Sigma of the lognormal size (of mean 1) of each request; 0: all alike, as pictures are."""
    overhead: float
    """Mean seconds per request outside the server: network, gRPC, the client."""
    overhead_noise: float = 0.3
    """Sigma of the lognormal factor (of mean 1) on it."""
    cpu_per_request: float
    """Core-seconds of the server per request, outside executions."""
    warm_up: float
    """Seconds after a start that are not measured."""
    restart_seconds: float
    """How long a change takes: a new process, and the model loaded and warm."""

    def threads(self, value: float) -> int:
        """Return how many threads a knob's value stands for: 0 means as many as the machine shows."""
        return int(value) or self.auto

    def all_threads(self, space: KnobSpace, name: str) -> np.ndarray:
        """Return how many threads a knob stands for in every configuration.   # (size,) int64."""
        values = space.column(name).astype(np.int64)
        return np.where(values == 0, self.auto, values)

    def traffic(self, burstiness: float = 1.0) -> Traffic:
        """Return what requests are like.

        Args:
            burstiness: Shape of the gamma distributed gaps between them.
        """
        return Traffic.of(self, burstiness=burstiness)

    def space(self, grids: Mapping[str, tuple[float, ...]] | None = None) -> KnobSpace:
        """Return the three knobs; a change restarts the process.

        Args:
            grids: Grids that replace the usual ones, by knob name. Where one lacks the knob's default, its
                middle value is the default.

        Raises:
            InvalidInput: A knob is unknown or a grid unusable.
        """
        own = {knob.name: knob for knob in self.knobs}
        for name, grid in (grids or {}).items():
            if name not in own:
                raise InvalidInput(f"knob {name}", "unknown", f"the simulated knobs are {', '.join(own)}")
            for value in grid:
                LIMITS.get(own[name].role, THREADS).check(name, value)
            values = tuple(float(value) for value in grid)
            middle = values[len(values) // 2] if values else math.nan
            start = own[name].default if own[name].default in values else middle
            own[name] = dataclasses.replace(own[name], grid=values, default=start)
        return KnobSpace(own.values())
