"""The model of a simulated TensorFlow Serving on a CPU: three kinds of parallelism (RRL, Figs. 1, 3, 4, 6).

What is modelled. A request is one run of a graph of operations. ``request_parallelism`` runs execute at once;
each has ``inter_op`` threads for operations that do not need each other, and every operation is split among
``intra_op`` threads, as in RRL's Fig. 1. (TensorFlow itself shares its two pools among the requests of a
process; we follow the paper's picture.) From the two come the time of one run on an idle machine and the
cores that it keeps busy:

* A graph is a chain of modules. A share ``serial`` of the work stands alone; the rest lies in ``branches``
  that may run side by side: with p threads, longest first on whichever thread is free.
* An operation is cut into ``blocks`` equal blocks, so its time falls in steps (24 blocks take 4 rounds on 6,
  7 threads alike); a share ``op_serial`` of it cannot be cut (Amdahl).
* Every further intra-op thread costs each operation ``fork`` seconds, every further inter-op thread
  ``handoff``; threads without work spin for a while, which keeps ``spin`` of each busy.
* Busy cores slow each other down (``contention``, memory bandwidth and caches). Threads beyond the cores
  share their time, and lose more by switches and by waiting for each other (``switching``).

Queueing, sharing and slowing down happen in the compiled batcher (:mod:`tuner.envs.simulator.batcher`).

Honesty. The authors' latency surface is not public. All constants here are ours, chosen so that the relations
of the paper's figures hold (locally smooth, globally rugged, best about 10 times faster than one thread for
everything, optimum inside the grid and elsewhere at another load); none is measured on the authors' machine.
A profile of a real server replaces them: ``tuner calibrate``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from tuner.envs.simulator.batched import Plans, make_plans
from tuner.envs.simulator.tfserving_model import TFServingModel
from tuner.errors import InvalidInput
from tuner.knobs import ApplyCost, Knob, KnobSpace, Role

__all__ = ["CPU_MODELS", "Run", "TFServingCPU"]

REQUEST_PARALLELISM, INTER_OP, INTRA_OP = "request_parallelism", "inter_op", "intra_op"
KNOBS = tuple(
    Knob(
        name=name,
        grid=tuple(float(value) for value in range(11)),
        default=5.0,  # where the authors begin
        apply_cost=ApplyCost.RESTART,
        role=role,
    )
    for name, role in (
        (REQUEST_PARALLELISM, Role.PARALLELISM),
        (INTER_OP, Role.INTER_OP),
        (INTRA_OP, Role.INTRA_OP),
    )
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the graph on an otherwise idle machine."""

    seconds: float
    """How long it takes while it gets every core it asks for."""
    cores: float
    """Cores it keeps busy on average."""


@dataclass(frozen=True, kw_only=True)
class TFServingCPU(TFServingModel):
    """What a simulated TensorFlow Serving on a CPU is like. The defaults are ``inception``.

    Raises:
        InvalidInput: A value is out of its range.
    """

    knobs: ClassVar[tuple[Knob, ...]] = KNOBS

    kind: Literal["tfserving_cpu"] = "tfserving_cpu"
    """What server it describes."""
    rate: float = 14.0
    work: float = 0.34
    """Core-seconds of a request of size 1 with one thread for everything."""
    operations: int = 220
    """Operations one after another in a run."""
    serial: float = 0.4
    """Share of the work that has no operation to run beside it."""
    branches: tuple[float, ...] = (0.34, 0.28, 0.22, 0.16)
    """Relative work of the operations that may run side by side in a module."""
    blocks: int = 24
    """Equal parts that an operation is cut into."""
    op_serial: float = 0.2
    """Share of an operation that is not cut."""
    fork: float = 20e-6
    """Seconds that each further intra-op thread costs an operation."""
    handoff: float = 30e-6
    """Seconds that each further inter-op thread costs an operation."""
    spin: float = 0.03
    """Share of a core that a thread without work keeps busy while a request runs."""
    contention: float = 0.015
    """Share by which work slows down per further busy core, below the number of cores already."""
    switching: float = 0.13
    """Share by which work slows down when as many threads wait for a core as there are cores."""
    cores: int = 10
    """Physical cores: what threads share."""
    noise: float = 0.08
    gap: float = 0.002
    """Seconds a request is taken before the run proper begins (decoding)."""
    overhead: float = 0.003
    cpu_per_request: float = 0.004
    warm_up: float = 4.0
    restart_seconds: float = 8.0

    def __post_init__(self) -> None:
        self.check_numbers(
            positive=("rate", "work", "operations", "blocks", "cores", "auto"),
            shares=("serial", "op_serial", "spin"),
        )
        if not self.branches or not all(0 < part < math.inf for part in self.branches):
            raise InvalidInput("server branches", f"{self.branches} must be positive numbers")

    def run(self, inter_op: int, intra_op: int) -> Run:
        """Return what one run of a request of size 1 takes with the given threads."""
        rounds = math.ceil(self.blocks / intra_op) / self.blocks
        operation = self.op_serial + (1.0 - self.op_serial) * rounds
        graph = self.serial + (1.0 - self.serial) * makespan(self.branches, inter_op)
        threading = self.operations * (self.fork * (intra_op - 1) + self.handoff * (inter_op - 1))
        seconds = self.work * graph * operation + threading
        working = self.work / seconds
        seconds *= 1.0 + self.contention * max(min(working, self.cores) - 1.0, 0.0)  # a run disturbs itself
        return Run(seconds, working + self.spin * max(inter_op * intra_op - working, 0.0))

    def plans(self, space: KnobSpace) -> Plans:
        """Return what every configuration means for the batcher."""
        pairs = np.stack((self.all_threads(space, INTER_OP), self.all_threads(space, INTRA_OP)), axis=1)
        distinct, which = np.unique(pairs, axis=0, return_inverse=True)
        runs = [self.run(*pair) for pair in distinct.tolist()]
        seconds = np.array([run.seconds for run in runs])[which.ravel()]
        return make_plans(
            space.size,
            max_batch=np.ones(space.size, np.int64),
            instances=self.all_threads(space, REQUEST_PARALLELISM),
            profile=np.stack((np.zeros_like(seconds), seconds), axis=1),
            gap=self.gap,
            contention=self.contention,
            switching=self.switching,
            cores=self.cores,
            threads=np.array([run.cores for run in runs])[which.ravel()],
            front=self.cpu_per_request,
        )


def makespan(branches: tuple[float, ...], threads: int) -> float:
    """Return how long branches take on some threads, longest first, relative to one thread alone."""
    loads = [0.0] * min(threads, len(branches))
    for branch in sorted(branches, reverse=True):
        loads[loads.index(min(loads))] += branch
    return max(loads) / sum(branches)


CPU_MODELS: Mapping[str, TFServingCPU] = {
    model.name: model
    for model in (
        TFServingCPU(),
        TFServingCPU(
            name="resnet",
            rate=7.0,
            work=0.56,
            operations=480,
            serial=0.5,
            branches=(0.45, 0.33, 0.22),
        ),
        TFServingCPU(
            name="deepspeech",
            work=0.26,
            operations=150,
            serial=0.3,
            branches=(0.5, 0.5),
            blocks=32,
            op_serial=0.15,
            handoff=60e-6,
            sizes=0.6,
        ),
    )
}
"""Servers known by name: Inception V3, Inception ResNet V2 (more work, half the load), and Deep Speech 2, a
recurrent network (two directions side by side) whose requests are as long as what was said."""
