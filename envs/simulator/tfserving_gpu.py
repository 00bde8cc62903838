"""The model of a simulated TensorFlow Serving on a GPU: batch size, timeout and threads (RRL, Figs. 2 and 5).

What is modelled. Requests wait until ``max_batch_size`` of them are there or the oldest has waited for the
timeout, and one of the batch threads is idle; that one executes the batch. A batch of b takes
``alpha * b + beta`` seconds alone. It does not fill the GPU (copies, small kernels, the host's part): it
keeps ``occupancy`` of it busy, so that two or three threads are faster than one. What more of them ask for
than there is, they share; they also slow each other down (``contention``: memory and caches) and lose time to
switches between them (``switching``). With many threads every request leaves at once in a batch of its own,
which is the most work for the GPU: timeout and threads depend on each other, as RRL's Fig. 5 shows.

The requests of a batch are padded to the largest, as spoken sentences are: where sizes differ, large batches
waste work.

Queueing, batching and sharing happen in the compiled batcher (:mod:`tuner.envs.simulator.batcher`), in which
the GPU takes the place of the cores.

Honesty. The authors' latency surface is not public. All constants here are ours, chosen so that the relations
of the paper's figure hold; none is measured on the authors' machine. A profile of a real server replaces
them: ``tuner calibrate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from tuner.envs.simulator.batched import Plans, Traffic, make_plans
from tuner.envs.simulator.tfserving_model import TFServingModel
from tuner.knobs import ApplyCost, Knob, KnobSpace, Role

__all__ = ["GPU_MODELS", "TFServingGPU"]

MAX_BATCH, TIMEOUT, BATCH_THREADS = "max_batch_size", "batch_timeout", "batch_threads"
KNOBS = (
    Knob(
        name=MAX_BATCH,
        grid=(1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 40.0, 50.0),
        default=50.0,
        apply_cost=ApplyCost.RESTART,
        role=Role.BATCH,
    ),
    Knob(
        name=TIMEOUT,
        grid=tuple(round(0.005 * step, 3) for step in range(11)),
        default=0.025,
        apply_cost=ApplyCost.RESTART,
        unit="s",
        role=Role.DELAY,
        idle_when=(MAX_BATCH, 1.0),
    ),
    Knob(
        name=BATCH_THREADS,
        grid=tuple(float(value) for value in range(11)),
        default=5.0,
        apply_cost=ApplyCost.RESTART,
        role=Role.PARALLELISM,
    ),
)


@dataclass(frozen=True, kw_only=True)
class TFServingGPU(TFServingModel):
    """What a simulated TensorFlow Serving on a GPU is like. The defaults are ``inception``.

    Raises:
        InvalidInput: A value is out of its range.
    """

    knobs: ClassVar[tuple[Knob, ...]] = KNOBS

    kind: Literal["tfserving_gpu"] = "tfserving_gpu"
    """What server it describes."""
    rate: float = 61.0
    alpha: float = 0.0075
    """Seconds more per request in the batch, alone on the GPU."""
    beta: float = 0.05
    """Seconds per batch."""
    occupancy: float = 0.4
    """Share of the GPU that one batch keeps busy."""
    contention: float = 0.3
    """Share by which batches slow down if others keep the whole GPU busy."""
    switching: float = 0.25
    """Share by which batches slow down when as much work waits for the GPU as it can do at once."""
    noise: float = 0.1
    gap: float = 0.003
    """Seconds a batch thread is taken per batch beside the execution (assembling, decoding)."""
    overhead: float = 0.004
    cpu_per_request: float = 0.006
    cpu_per_batch: float = 0.01
    """Core-seconds of the server per batch."""
    warm_up: float = 2.0
    restart_seconds: float = 12.0

    def __post_init__(self) -> None:
        self.check_numbers(positive=("rate", "occupancy", "cores", "auto", "beta"), shares=("occupancy",))

    def plans(self, space: KnobSpace) -> Plans:
        """Return what every configuration means for the batcher."""
        batches = space.column(MAX_BATCH).astype(np.int64)
        sizes = np.arange(batches.max() + 1)
        return make_plans(
            space.size,
            max_batch=batches,
            delay=np.where(batches == 1, 0.0, space.column(TIMEOUT)),
            instances=self.all_threads(space, BATCH_THREADS),
            profile=np.tile(self.alpha * sizes + self.beta, (space.size, 1)),
            gap=self.gap,
            contention=self.contention,
            switching=self.switching,
            cores=1.0,  # the GPU, which executions share
            threads=self.occupancy,
        )

    def traffic(self, burstiness: float = 1.0) -> Traffic:  # noqa: D102 - inherited
        return replace(super().traffic(burstiness), on_gpu=True)


GPU_MODELS: Mapping[str, TFServingGPU] = {
    model.name: model
    for model in (
        TFServingGPU(),
        TFServingGPU(name="deepspeech", alpha=0.0025, beta=0.045, sizes=0.6),
    )
}
"""Servers known by name: Inception V3, and Deep Speech 2 with requests as long as what was said."""
