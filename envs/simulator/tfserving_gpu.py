"""Describes a simulated TensorFlow Serving on a GPU: batch size, timeout and threads (RRL, Figs. 2 and 5).

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
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tuner.envs.simulator.batched import Plans, Traffic
from tuner.envs.simulator.model_file import ModelFile
from tuner.envs.simulator.model_space import model_space, threads
from tuner.knobs import ApplyCost, Knob, KnobSpace, Role

__all__ = ["GPU_MODELS", "TFServingGPU"]

MAX_BATCH, TIMEOUT, BATCH_THREADS = "max_batch_size", "batch_timeout", "batch_threads"
LARGEST_BATCH = 1024
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
class TFServingGPU(ModelFile):
    """What a simulated TensorFlow Serving on a GPU is like. The defaults are ``inception``.

    Raises:
        InvalidInput: A value is out of its range.
    """

    kind: Literal["tfserving_gpu"] = "tfserving_gpu"
    """What server it describes."""
    name: str = "inception"
    """The model's name."""
    rate: float = 61.0
    """The load it is meant for, requests/s."""
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
    cores: float = 10.0
    """CPU cores of the machine; what a CPU share refers to."""
    auto: int = 20
    """Threads that 0 stands for: as many as the machine shows cores."""
    noise: float = 0.1
    """Sigma of the lognormal factor (of mean 1) on each batch."""
    sizes: float = 0.0
    """Sigma of the lognormal size (of mean 1) of each request; 0: all alike."""
    gap: float = 0.003
    """Seconds a batch thread is taken per batch beside the execution (assembling, decoding)."""
    overhead: float = 0.004
    """Mean seconds per request outside the server: network, gRPC, the client."""
    overhead_noise: float = 0.3
    """Sigma of the lognormal factor (of mean 1) on it."""
    cpu_per_request: float = 0.006
    """Core-seconds of the server per request."""
    cpu_per_batch: float = 0.01
    """Core-seconds of the server per batch."""
    warm_up: float = 2.0
    """Seconds after a start that are not measured."""
    restart_seconds: float = 12.0
    """How long a change takes: a new process, and the model loaded and warm."""

    def __post_init__(self) -> None:
        self.check_numbers(positive=("rate", "occupancy", "cores", "auto", "beta"), shares=("occupancy",))

    def space(self, grids: Mapping[str, tuple[float, ...]] | None = None) -> KnobSpace:
        """Return the three knobs; a change starts the process anew.

        Args:
            grids: Grids that replace the usual ones, by knob name.

        Raises:
            InvalidInput: A knob is unknown or a grid unusable.
        """
        return model_space(KNOBS, grids, _problem)

    def plans(self, space: KnobSpace) -> Plans:
        """Return what every configuration means for the batcher."""
        configurations = [space.effective(space.decode(number)) for number in range(space.size)]
        batches = np.array([c[MAX_BATCH] for c in configurations], np.int64)
        sizes = np.arange(batches.max() + 1)

        def alike(value: float) -> np.ndarray:
            return np.full(space.size, value)

        return Plans(
            max_batch=batches,
            delay=np.array([c[TIMEOUT] for c in configurations]),
            instances=np.array([int(c[BATCH_THREADS]) or self.auto for c in configurations], np.int64),
            closing=alike(0.0),
            profile=np.tile(self.alpha * sizes + self.beta, (space.size, 1)),
            gap=alike(self.gap),
            contention=alike(self.contention),
            switching=alike(self.switching),
            cores=alike(1.0),
            threads=alike(self.occupancy),
            front=alike(0.0),
        )

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
            cpu_per_batch=self.cpu_per_batch,
            on_gpu=True,
        )


def _problem(name: str, value: float) -> str | None:
    if name == BATCH_THREADS:
        return threads(value)
    if name == TIMEOUT:
        return None if 0 <= value <= 10.0 else "is not between 0 and 10 s"
    whole = 1 <= value <= LARGEST_BATCH and value == int(value)
    return None if whole else f"is not a whole number of 1..{LARGEST_BATCH}"


GPU_MODELS: Mapping[str, TFServingGPU] = {
    model.name: model
    for model in (
        TFServingGPU(),
        TFServingGPU(name="deepspeech", alpha=0.0025, beta=0.045, sizes=0.6),
    )
}
"""Servers known by name: Inception V3, and Deep Speech 2 with requests as long as what was said."""
