"""Random servers: their models are drawn from the seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.envs.simulator.backend import triton_space
from tuner.envs.simulator.server import ServerModel
from tuner.knobs import KnobSpace
from tuner.objective import Objective, Slo

__all__ = ["HeldOut", "default_is_best", "held_out"]

SIZES = (1, 2, 4, 8, 16, 32)
GOALS = ("latency", "cpu", "strict")
BUMP = 0.08
"""Sigma of the lognormal factor by which l(b) leaves the straight line."""
USE = (0.08, 0.5)
"""Least and highest usual rate beside the highest that the server could serve."""
FASTEST = 500.0
"""Highest usual rate, requests/s: a life must not take long."""


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """A server, what is wanted of it, and the load that it is meant for."""

    server: ServerModel
    objective: Objective
    rate: float
    """requests/s"""

    @property
    def space(self) -> KnobSpace:
        """Its knobs."""
        return triton_space(self.server)


def held_out(rng: np.random.Generator, number: int) -> HeldOut:
    """Draw a server: Triton's batcher with an even number, TensorFlow Serving's with an odd one.

    Args:
        rng: Where it comes from.
        number: Decides its kind, and its goal.
    """
    cores = int(rng.integers(2, 5))
    single, share = float(np.exp(rng.uniform(np.log(0.002), np.log(0.02)))), rng.uniform(0.3, 0.95)
    sizes = np.array(SIZES, float)
    line = single * (share + (1 - share) * sizes) * np.exp(rng.normal(0.0, BUMP, sizes.size) * (sizes > 1))
    overhead = rng.uniform(0.0005, 0.003)
    server = ServerModel(
        name="held-out",
        table=dict(zip(SIZES, map(float, np.maximum.accumulate(line)), strict=True)),
        noise=rng.uniform(0.1, 0.5),
        gap=rng.uniform(0.0001, 0.0004),
        closing=0.0 if number % 2 else 0.5,
        contention=rng.uniform(0.05, 0.4),
        cores=float(cores),
        overhead=overhead,
        cpu_per_request=rng.uniform(0.0001, 0.0006),
        cpu_per_batch=rng.uniform(0.0001, 0.0006),
        client_cpu_per_request=rng.uniform(0.0, 0.0006),
        reload_seconds=rng.uniform(0.2, 2.0),
        settle_seconds=rng.uniform(0.5, 3.0),
    )
    slo = (overhead + single) * rng.uniform(3.0, 8.0)
    rate = min(capacity(server, slo) * float(np.exp(rng.uniform(*np.log(USE)))), FASTEST)
    return HeldOut(server=server, objective=_objective(slo, number, cores), rate=rate)


def default_is_best(rng: np.random.Generator, number: int) -> HeldOut:
    """Draw a server with one core whose batches take as long as their requests one by one.

    So neither batches nor further instances help, and the default, which is one instance without batching,
    cannot be improved.
    """
    single, overhead = rng.uniform(0.004, 0.01), rng.uniform(0.0005, 0.003)
    server = ServerModel(name="default-is-best", table={}, alpha=single, cores=1.0, overhead=overhead)
    slo = (overhead + single) * rng.uniform(5.0, 8.0)
    return HeldOut(server=server, objective=_objective(slo, number, 1), rate=rng.uniform(0.2, 0.35) / single)


def capacity(server: ServerModel, slo: float) -> float:
    """Return about the highest rate at which batches of some size keep the SLO, requests/s."""
    crowded = 1.0 + server.contention * (server.cores - 1.0)
    fronts = server.cpu_per_request + server.client_cpu_per_request
    work = [seconds * crowded / size for size, seconds in server.table.items() if 2 * seconds <= slo]
    return server.cores / (min(work) + fronts)


def _objective(slo: float, number: int, cores: int) -> Objective:
    return Objective(
        slo=Slo(statistic="p95", latency=float(slo)), goal=GOALS[number % len(GOALS)], cores=float(cores)
    )
