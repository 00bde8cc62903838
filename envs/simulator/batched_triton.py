"""Triton for the batched simulator: every window begins on an empty server, nothing carries over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tuner.envs.simulator.backend import DELAY, INSTANCES, MAX_BATCH, triton_space
from tuner.envs.simulator.batched import Plans, Traffic, make_plans
from tuner.envs.simulator.server import ServerModel
from tuner.knobs import KnobSpace

__all__ = ["BatchedTriton"]


@dataclass(frozen=True, kw_only=True)
class BatchedTriton:
    """A model of Triton in the form that the batched simulator needs."""

    kind: ClassVar[str] = "triton"

    server: ServerModel
    rate: float = 200.0
    """The load it is meant for, requests/s."""
    warm_up: float = 2.0
    """Seconds before a window that are not measured."""

    @property
    def name(self) -> str:
        """The model's name."""
        return self.server.name

    @property
    def cores(self) -> float:
        """CPU cores of the machine."""
        return self.server.cores

    @property
    def restart_seconds(self) -> float:
        """How long a change takes: a reload."""
        return self.server.reload_seconds

    def space(self, grids: Mapping[str, tuple[float, ...]] | None = None) -> KnobSpace:
        """Return the knobs of Triton's dynamic batcher."""
        return triton_space(self.server, grids)

    def plans(self, space: KnobSpace) -> Plans:
        """Return what every configuration means for the batcher."""
        server = self.server
        configurations = [space.effective(space.decode(number)) for number in range(space.size)]
        batches = np.array([c[MAX_BATCH] for c in configurations], np.int64)
        return make_plans(
            space.size,
            max_batch=batches,
            delay=np.array([c[DELAY] for c in configurations]),
            instances=np.array([c[INSTANCES] for c in configurations], np.int64),
            closing=server.closing,
            profile=np.tile(server.profile_table(int(batches.max())), (space.size, 1)),
            gap=server.gap,
            contention=server.contention,
            cores=server.cores,
            threads=server.threads,
            front=server.cpu_per_request + server.client_cpu_per_request,
        )

    def traffic(self, burstiness: float = 1.0) -> Traffic:
        """Return what requests are like.

        Args:
            burstiness: Shape of the gamma distributed gaps between them.
        """
        return Traffic.of(self.server, burstiness=burstiness, warm_up=self.warm_up)
