"""Tests of long simulated windows."""

from __future__ import annotations

import pytest

from tuner.envs.simulator.long_window import simulate
from tuner.envs.simulator.server import ServerModel


def test_delay_saves_cpu() -> None:
    """A queueing delay costs latency and saves CPU, as on the real server."""
    prompt, patient = (
        simulate(ServerModel(), {"max_batch_size": 16, "max_queue_delay": delay, "instances": 1}, 150.0)
        for delay in (0.0, 0.02)
    )

    assert patient.latency_p95 > 2 * prompt.latency_p95
    assert patient.cpu < 0.6 * prompt.cpu


REAL = (  # rate, instances, max batch, delay s, p95 s measured on Triton 2.51 with a model of l(1) near 5 ms
    (150, 1, 1, 0.0, 0.0375),
    (150, 1, 4, 0.0, 0.0145),
    (150, 1, 16, 0.005, 0.016),
    (150, 1, 16, 0.02, 0.0335),
    (150, 2, 1, 0.0, 0.0145),
    (150, 2, 16, 0.0, 0.012),
    (300, 1, 4, 0.0, 0.0215),
    (300, 2, 4, 0.0, 0.0145),
    (300, 2, 16, 0.02, 0.039),
)


@pytest.mark.parametrize(("rate", "instances", "batch", "delay", "p95"), REAL)
def test_surface_is_the_real_one(rate: float, instances: int, batch: int, delay: float, p95: float) -> None:
    """One server model explains the whole latency surface measured on a real Triton, within 20 %."""
    server = ServerModel(
        table={}, alpha=0.00103, beta=0.00374, noise=0.32, contention=0.16, overhead=0.00095, gap=0.00014
    )
    configuration = {"max_batch_size": batch, "max_queue_delay": delay, "instances": instances}

    assert simulate(server, configuration, rate, seconds=60.0).latency_p95 == pytest.approx(p95, rel=0.2)


def test_overload_is_overload() -> None:
    """Single requests at 300 r/s end in seconds of latency, as they did on the real server."""
    configuration = {"max_batch_size": 1, "max_queue_delay": 0.0, "instances": 1}

    assert 2.0 < simulate(ServerModel(), configuration, 300.0, seconds=9.0).latency_p95 < 6.0
