"""What the simulated server does in one long window, and the speed of the kernel."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from tuner.envs.simulator import batcher
from tuner.envs.simulator.batcher import Batching
from tuner.envs.simulator.server import ServerModel
from tuner.envs.simulator.world import World
from tuner.knobs import Configuration
from tuner.measurement import NOT_KNOWN, Measurement
from tuner.profile import fit_profile
from tuner.workload.load import RateSchedule

__all__ = ["kernel_speed", "simulate"]

WARM_UP = 2.0
"""Seconds simulated before a window begins; the same as after a live change."""


def simulate(
    server: ServerModel,
    configuration: Mapping[str, float],
    rate: float,
    *,
    seconds: float = 60.0,
    seed: int = 1,
) -> Measurement:
    """Simulate one window of one configuration on a fresh server, after a warm-up.

    Args:
        server: What is simulated.
        configuration: ``max_batch_size``, ``max_queue_delay`` (s) and ``instances``.
        rate: Poisson load, requests/s.
        seconds: Length of the window.
        seed: Of arrivals and noise.
    """
    batching = Batching(
        int(configuration["max_batch_size"]),
        float(configuration["max_queue_delay"]),
        int(configuration["instances"]),
    )
    world = World(
        server,
        RateSchedule.constant(rate),
        seed=seed,
        largest=batching.max_batch,
        instances=batching.instances,
    )
    world.configure(batching, fresh=False)
    world.advance(WARM_UP)
    start, used = world.now, world.read()
    before = _Totals(world)
    world.advance(seconds)
    after, end, reading = _Totals(world), world.now, world.read()
    sample = world.sample(start, end)
    answered = sample.latency[~np.isnan(sample.latency)]
    counts, busy = after.counts - before.counts, after.seconds - before.seconds
    requests, executions = after.requests - before.requests, int(counts.sum())
    p50, p95, p99 = np.quantile(answered, [0.5, 0.95, 0.99]) if answered.size else [NOT_KNOWN] * 3
    return Measurement(
        start=start,
        end=end,
        configuration=Configuration(configuration),
        requests=requests,
        failures=sample.failed,
        arrival_rate=sample.intended.size / seconds,
        latency_mean=float(answered.mean()) if answered.size else NOT_KNOWN,
        latency_p50=float(p50),
        latency_p95=float(p95),
        latency_p99=float(p99),
        quantiles_from="client",
        queue_mean=(after.queue - before.queue) / requests if requests else NOT_KNOWN,
        compute_mean=(after.compute - before.compute) / requests if requests else NOT_KNOWN,
        batch_mean=requests / executions if executions else NOT_KNOWN,
        batches={int(size): int(counts[size]) for size in np.flatnonzero(counts)},
        profile=fit_profile(counts, busy),
        cpu=(reading.server - used.server) / seconds,
        foreign_cpu=0.0,
    )


class _Totals:
    """A copy of the world's totals at one instant."""

    def __init__(self, world: World) -> None:
        totals = world.totals
        self.requests = int(totals.tally[batcher.ANSWERED])
        self.queue = float(totals.seconds[batcher.QUEUED])
        self.compute = float(totals.seconds[batcher.COMPUTED])
        self.counts = totals.batch_counts.copy()
        self.seconds = totals.batch_seconds.copy()


def kernel_speed(*, rate: float = 200.0, window: float = 5.0, windows: int = 400) -> dict[str, float]:
    """Measure how fast the simulator is on this machine, compilation excluded.

    Args:
        rate: Requests/s of the simulated load.
        window: Simulated seconds per window.
        windows: How many are timed.

    Returns:
        ``requests_per_second`` of real time, and ``seconds_per_window``.
    """
    world = World(ServerModel(), RateSchedule.constant(rate), seed=1, largest=8, instances=2)
    world.configure(Batching(8, 0.002, 2), fresh=False)
    world.advance(window)  # compiles
    before = int(world.totals.tally[batcher.ANSWERED])
    begin = time.perf_counter()
    for _ in range(windows):
        world.advance(window)
    passed = time.perf_counter() - begin
    done = int(world.totals.tally[batcher.ANSWERED]) - before
    return {"requests_per_second": done / passed, "seconds_per_window": passed / windows}
