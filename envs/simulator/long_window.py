"""What the simulated server does in one long window, and the speed of the kernel."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from tuner.envs.simulator import batcher
from tuner.envs.simulator.batcher import Batching
from tuner.envs.simulator.server import ServerModel
from tuner.envs.simulator.world import World, batching_of
from tuner.knobs import Configuration
from tuner.measurement import NOT_KNOWN, QUANTILES, Measurement, latencies
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
    batching = batching_of(configuration)
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
    before = world.counters()
    world.advance(seconds)
    work, end, reading = world.counters().since(before), world.now, world.read()
    sample = world.sample(start, end)
    answered = sample.latency[~np.isnan(sample.latency)]
    quantiles = (
        np.quantile(answered, [*QUANTILES.values()]) if answered.size else [NOT_KNOWN] * len(QUANTILES)
    )
    return work.measurement(
        start=start,
        end=end,
        configuration=Configuration(configuration),
        failures=sample.failed,
        arrival_rate=sample.intended.size / seconds,
        quantiles_from="client",
        cpu=(reading.server - used.server) / seconds,
        foreign_cpu=0.0,
        **latencies(answered.mean() if answered.size else NOT_KNOWN, quantiles),
    )


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
