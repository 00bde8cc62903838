"""What the simulated server does in one long window."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tuner.envs.simulator.server import ServerModel
from tuner.envs.simulator.world import World, batching_of
from tuner.knobs import Configuration
from tuner.measurement import NOT_KNOWN, QUANTILES, Measurement, latencies
from tuner.workload.schedule import RateSchedule

__all__ = ["simulate"]

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
