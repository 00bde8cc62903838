"""The base of models of a simulated TensorFlow Serving: its load, threads, requests and knobs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tuner.envs.simulator.batched import Traffic
from tuner.envs.simulator.model_file import ModelFile
from tuner.errors import InvalidInput
from tuner.knobs import Knob, KnobSpace, Role

__all__ = ["TFServingModel"]

MOST_THREADS = 64
LONGEST_DELAY = 10.0  # s
LARGEST_BATCH = 1024


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

    def traffic(self, burstiness: float = 1.0) -> Traffic:
        """Return what requests are like.

        Args:
            burstiness: Shape of the gamma distributed gaps between them.
        """
        return Traffic(
            noise=self.noise,
            sizes=self.sizes,
            overhead=self.overhead,
            overhead_noise=self.overhead_noise,
            burstiness=burstiness,
            warm_up=self.warm_up,
            cpu_per_request=self.cpu_per_request,
        )

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
                problem = self.problem(own[name], value) if math.isfinite(value) else "is not finite"
                if problem:
                    raise InvalidInput(f"knob {name}", f"{value:g} {problem}")
            values = tuple(float(value) for value in grid)
            middle = values[len(values) // 2] if values else math.nan
            start = own[name].default if own[name].default in values else middle
            own[name] = dataclasses.replace(own[name], grid=values, default=start)
        return KnobSpace(own.values())

    def problem(self, knob: Knob, value: float) -> str | None:
        """Say what is wrong with a value of a knob; None if it can be simulated."""
        if knob.role is Role.DELAY:
            return None if 0 <= value <= LONGEST_DELAY else f"is not between 0 and {LONGEST_DELAY:g} s"
        if knob.role is Role.BATCH:
            whole = 1 <= value <= LARGEST_BATCH and value == int(value)
            return None if whole else f"is not a whole number of 1..{LARGEST_BATCH}"
        threads = 0 <= value <= MOST_THREADS and value == int(value)
        return None if threads else f"is not one of 0..{MOST_THREADS}"
