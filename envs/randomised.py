"""Random servers: models of every kind with constants drawn from wide ranges, and loads that suit them.

What is learned on many unlike servers holds on one more (domain randomisation; Tobin et al., IROS'17).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tuner.envs.batched_server import BatchedModel
from tuner.envs.simulator.backend import DELAY, INSTANCES, MAX_BATCH
from tuner.envs.simulator.batched_triton import BatchedTriton
from tuner.envs.simulator.server import ServerModel
from tuner.envs.simulator.tfserving_cpu import TFServingCPU
from tuner.envs.simulator.tfserving_gpu import TFServingGPU
from tuner.knobs import KnobSpace

__all__ = ["FAMILIES", "RandomServer", "draw_server"]

FAMILIES = ("triton", "tfserving_cpu", "tfserving_gpu")
REQUESTS = (500.0, 2000.0)
"""Requests of a window, at its load."""
WARM_UP = 150.0
"""Requests before a window that are not measured."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, kw_only=True)
class RandomServer:
    """A server, its knobs, and a load."""

    model: BatchedModel
    space: KnobSpace
    rate: float
    """Requests/s."""
    burstiness: float
    """Shape of the gamma distributed gaps between requests: 1 Poisson, less for bursts."""
    seconds: float
    """Length of a window."""
    executions: np.ndarray
    """l(b) at batch sizes 1, 2, 4, .. 64 of an undisturbed run with a thread for everything, s.   # (7,)"""


class _Ranges:
    """Draws from ranges, which ``width`` stretches about their middle: 1 for training, more for others."""

    def __init__(self, generator: np.random.Generator, width: float) -> None:
        self.generator = generator
        self.width = width

    def log(self, low: float, high: float) -> float:
        """Return a number, log-uniform."""
        middle, half = 0.5 * math.log(low * high), 0.5 * math.log(high / low) * self.width
        return math.exp(self.generator.uniform(middle - half, middle + half))

    def share(self, low: float, high: float) -> float:
        """Return a number, uniform, within 0..1."""
        middle, half = 0.5 * (low + high), 0.5 * (high - low) * self.width
        return float(np.clip(self.generator.uniform(middle - half, middle + half), 0.0, 1.0))

    def maybe(self, chance: float, value: float, otherwise: float = 0.0) -> float:
        return value if self.generator.random() < chance else otherwise

    def whole(self, low: float, high: float) -> int:
        return max(round(self.log(low, high)), 1)


def draw_server(family: str, generator: np.random.Generator, width: float = 1.0) -> RandomServer:
    """Draw a server of a family and a load of 8 to 92 % of what it can serve.

    Args:
        family: One of :data:`FAMILIES`.
        generator: Draws.
        width: Of the ranges of all constants, in logarithms: 1 is what estimators are trained on.
    """
    draw = _Ranges(generator, width)
    model, executions = DRAWN_BY[family](draw)
    space = model.space(_grids(draw, model))
    rate = _capacity(model, space) * generator.uniform(0.08, 0.92)
    burstiness = draw.maybe(0.4, draw.log(0.3, 4.0), 1.0)
    seconds = draw.log(*REQUESTS) / rate
    if isinstance(model, BatchedTriton):
        model = BatchedTriton(server=model.server, rate=rate, warm_up=WARM_UP / rate)
    else:
        model = model.replace(rate=rate, warm_up=WARM_UP / rate)
    return RandomServer(
        model=model, space=space, rate=rate, burstiness=burstiness, seconds=seconds, executions=executions
    )


def _grids(draw: _Ranges, model: BatchedModel) -> dict[str, tuple[float, ...]]:
    """Return grids of the knobs; that of a live server's instances ends near its cores."""
    if isinstance(model, BatchedTriton):
        largest = draw.generator.integers(3, 8)
        unit = model.server.execution(1)
        steps: tuple[float, ...] = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02)
        if draw.generator.random() < 0.6:
            scale = draw.log(0.1, 3.0) * unit
            steps = (0.0, *(round(scale * x, 7) for x in (0.25, 0.5, 1.0, 2.0, 4.0)))
        cores = int(min(model.cores, 64))
        most = min(max(cores, 2), 12)
        instances = {1, 2, *np.unique(np.geomspace(1, max(cores, 2), most).round()).tolist()}
        return {
            MAX_BATCH: tuple(float(2**i) for i in range(largest)),
            DELAY: steps,
            INSTANCES: tuple(sorted(float(i) for i in instances)),
        }
    return {}


def _draw_triton(draw: _Ranges) -> tuple[BatchedTriton, np.ndarray]:
    cores = float(draw.whole(2, 24))
    first = draw.log(0.001, 0.1)
    exponents = np.clip(draw.generator.normal(draw.share(0.05, 0.85), 0.15, len(SIZES) - 1), 0.0, 1.1)
    table = first * np.exp(np.concatenate([[0.0], np.cumsum(exponents * math.log(2.0))]))
    threads = draw.maybe(0.35, min(draw.log(1.2, 4.0), cores), 1.0)
    server = ServerModel(
        name="random",
        table={size: float(seconds) for size, seconds in zip(SIZES, table, strict=True)},
        noise=draw.log(0.03, 0.5),
        gap=first * draw.log(0.003, 0.15),
        closing=draw.maybe(0.7, draw.share(0.3, 0.7)),
        contention=draw.share(0.0, 1.0) / max(cores - 1.0, 1.0),
        cores=cores,
        threads=threads,
        overhead=first * draw.log(0.02, 0.5),
        overhead_noise=draw.log(0.2, 0.7),
        cpu_per_request=first * draw.log(0.005, 0.12),
        cpu_per_batch=first * draw.log(0.003, 0.1),
        client_cpu_per_request=draw.maybe(0.5, first * draw.log(0.01, 0.2)),
    )
    return BatchedTriton(server=server), np.asarray(table[:7])


def _draw_tfserving_cpu(draw: _Ranges) -> tuple[TFServingCPU, np.ndarray]:
    work = draw.log(0.02, 2.0)
    operations = draw.whole(40, 800)
    cores = draw.whole(3, 24)
    branches = np.sort(draw.generator.dirichlet(np.full(draw.generator.integers(1, 7), 4.0)))[::-1]
    each = work / operations
    model = TFServingCPU(
        name="random",
        work=work,
        operations=operations,
        serial=draw.share(0.15, 0.75),
        branches=tuple(float(part) for part in branches),
        blocks=draw.whole(8, 64),
        op_serial=draw.share(0.04, 0.4),
        fork=each * draw.log(0.003, 0.06),
        handoff=each * draw.log(0.003, 0.08),
        spin=draw.share(0.0, 0.08),
        contention=draw.share(0.0, 0.6) / max(cores - 1.0, 1.0),
        switching=draw.log(0.03, 0.5),
        cores=cores,
        auto=cores * int(draw.generator.integers(1, 3)),
        noise=draw.log(0.03, 0.3),
        gap=work * draw.log(0.001, 0.03),
        overhead=work * draw.log(0.002, 0.05),
        cpu_per_request=work * draw.log(0.003, 0.05),
        sizes=draw.maybe(0.35, draw.log(0.2, 0.8)),
    )
    return model, np.full(7, work)


def _draw_tfserving_gpu(draw: _Ranges) -> tuple[TFServingGPU, np.ndarray]:
    beta = draw.log(0.002, 0.15)
    alpha = beta * draw.log(0.015, 0.5)
    occupancy = draw.share(0.2, 0.9)
    model = TFServingGPU(
        name="random",
        alpha=alpha,
        beta=beta,
        occupancy=max(occupancy, 0.05),
        contention=draw.share(0.05, 0.6),
        switching=draw.log(0.05, 0.6),
        noise=draw.log(0.03, 0.3),
        gap=beta * draw.log(0.01, 0.15),
        overhead=beta * draw.log(0.02, 0.3),
        cpu_per_request=beta * draw.log(0.01, 0.2),
        cpu_per_batch=beta * draw.log(0.02, 0.3),
        cores=float(draw.whole(4, 32)),
        auto=int(draw.generator.integers(8, 33)),
        sizes=draw.maybe(0.35, draw.log(0.2, 0.8)),
    )
    return model, np.asarray(alpha * 2.0 ** np.arange(7) + beta)


def _capacity(model: BatchedModel, space: KnobSpace) -> float:
    """Return about how many requests/s a server can serve at most."""
    if isinstance(model, BatchedTriton):
        return _triton_capacity(model.server, space)
    if isinstance(model, TFServingCPU):
        busy = (1.0 + model.contention * (model.cores - 1)) * (model.work + model.gap) + model.cpu_per_request
        return model.cores / busy
    largest = model.knobs[0].grid[-1]
    one = largest / (model.alpha * largest + model.beta)
    return one * max(min(1.0 / model.occupancy, 3.0) / (1.0 + model.contention), 1.0)


def _triton_capacity(server: ServerModel, space: KnobSpace) -> float:
    """Return about how many requests/s a Triton can serve with its largest batch or a smaller one."""
    knobs = dict(zip(space.names, space.knobs, strict=True))
    sizes = np.array(knobs[MAX_BATCH].grid)
    slots = min(max(server.cores / server.threads, 1.0), knobs[INSTANCES].grid[-1])
    slowed = 1.0 + server.contention * (min(slots * server.threads, server.cores) - 1.0)
    seconds = server.profile_table(int(sizes[-1]))[sizes.astype(int)]
    per_request = slowed * (seconds + server.gap) / sizes / slots
    front = server.cpu_per_request + server.client_cpu_per_request
    return 1.0 / float((per_request + front / server.cores).min())


DRAWN_BY: Mapping[str, Callable[[_Ranges], tuple[BatchedModel, np.ndarray]]] = {
    "triton": _draw_triton,
    "tfserving_cpu": _draw_tfserving_cpu,
    "tfserving_gpu": _draw_tfserving_gpu,
}
"""By family: draws a model, and l(b) at batch sizes 1, 2, 4, .. 64."""
