"""Tests of fitting a simulated server to measurements."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tuner.envs.simulator import calibration
from tuner.envs.simulator.backend import triton_space
from tuner.envs.simulator.calibration import calibrate
from tuner.envs.simulator.long_window import simulate
from tuner.envs.simulator.server import ServerModel
from tuner.errors import InvalidInput
from tuner.measurement import Measurement

TRUTH = ServerModel(
    table={1: 0.0061, 2: 0.0064, 4: 0.0072, 8: 0.0105, 16: 0.019, 32: 0.037},
    noise=0.25,
    gap=0.0003,
    contention=0.17,
    overhead=0.0017,
    cpu_per_request=0.0007,
    cpu_per_batch=0.0004,
)


@pytest.fixture(scope="module")
def sweep() -> list[Measurement]:
    """Windows of 6 s over a coarse grid at two rates, each with its own randomness."""
    grids = {"max_batch_size": (1.0, 4.0, 16.0), "max_queue_delay": (0.0, 0.005, 0.02)}
    space = triton_space(TRUTH, grids)
    return [
        simulate(TRUTH, space.decode(index), rate, seconds=6.0, seed=int(1000 * rate) + index)
        for rate in (120.0, 250.0)
        for index in range(space.size)
    ]


@pytest.fixture(scope="module")
def fitted(sweep: list[Measurement]) -> ServerModel:
    """The server calibrated to the sweep; in shorter searches where kernels are not compiled."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("NUMBA_DISABLE_JIT") == "1":
            patch.setattr(calibration, "SECONDS", 8.0)
        return calibrate(sweep)


@pytest.mark.parametrize(
    ("name", "within"), [("overhead", 0.1), ("cpu_per_request", 0.3), ("contention", 0.5), ("noise", 0.35)]
)
@pytest.mark.compiled
def test_recovers_parameters(fitted: ServerModel, name: str, within: float) -> None:
    """Parameters come out near the truth; contention least, as it shows only while two instances execute."""
    assert getattr(fitted, name) == pytest.approx(getattr(TRUTH, name), rel=within)


@pytest.mark.compiled
def test_recovers_profile(fitted: ServerModel) -> None:
    """l(b) comes out near the truth for the sizes that were executed."""
    batches = [1, 2, 3, 4]

    assert fitted.profile_table(8)[batches] == pytest.approx(TRUTH.profile_table(8)[batches], rel=0.06)


def p95_errors(server: ServerModel, measurements: Sequence[Measurement]) -> np.ndarray:
    """Simulated p95 over measured p95, minus 1, for each window that has one.   # (n,)."""
    measured = [m for m in measurements if m.latency_p95 > 0 and not m.disturbed]
    simulated = [simulate(server, m.configuration, m.arrival_rate, seconds=m.seconds) for m in measured]
    return np.array([s.latency_p95 / m.latency_p95 - 1.0 for s, m in zip(simulated, measured, strict=True)])


@pytest.mark.compiled
def test_predicts_p95(fitted: ServerModel, sweep: list[Measurement]) -> None:
    """The simulated p95 is within 10 % of the measured one for most windows."""
    errors = np.median(np.abs(p95_errors(fitted, sweep)))

    assert errors < 0.10
    assert errors < np.median(np.abs(p95_errors(ServerModel(), sweep)))


@pytest.mark.compiled
def test_ignores_disturbed_windows(sweep: list[Measurement]) -> None:
    """A disturbed window changes nothing."""
    odd = replace(sweep[0], compute_mean=1.0, disturbed=("foreign CPU",))

    assert calibrate([odd, sweep[0]]) == calibrate([sweep[0]])


def test_one_window_is_enough() -> None:
    """With a single window what it shows is fitted and the rest stays as given."""
    base = ServerModel(contention=0.33)
    window = simulate(TRUTH, {"max_batch_size": 1, "max_queue_delay": 0, "instances": 1}, 60.0, seconds=20.0)

    fitted = calibrate([window], base=base)

    assert fitted.execution(1) == pytest.approx(TRUTH.execution(1), rel=0.06)
    assert fitted.contention == 0.33


def test_requests_of_several_rows_are_simulated_row_by_row() -> None:
    """20 requests/s of 16 rows are a load of 320/s in the simulation, where a request has one."""
    configuration = {"max_batch_size": 16, "max_queue_delay": 0.01, "instances": 1}
    window = replace(simulate(TRUTH, configuration, 320.0, seconds=5.0), requests=1600)
    several = replace(window, requests=100, arrival_rate=window.arrival_rate / 16, request_rows=16.0)

    assert calibrate([several]) == calibrate([window])


@pytest.mark.compiled
def test_the_front_ends_cpu_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A front end far heavier than the default slows the fitted server down as it did the real one."""
    monkeypatch.setattr(calibration, "SECONDS", 5.0)
    truth = ServerModel(cpu_per_request=0.003, noise=0.1)
    knobs = ((2, 1), (8, 1), (8, 2))
    tried = [{"max_batch_size": b, "max_queue_delay": 0, "instances": i} for b, i in knobs]
    measured = [simulate(truth, configuration, 150.0, seconds=8.0) for configuration in tried]

    fitted = calibrate(measured, cores=2.0)

    again = [simulate(fitted, configuration, 150.0, seconds=8.0) for configuration in tried]
    assert [m.compute_mean for m in again] == pytest.approx([m.compute_mean for m in measured], rel=0.04)


def test_low_loads_are_simulated_until_requests_come() -> None:
    """At one request in 20 s nothing comes in the usual 15 s; a window without an arrival is left out."""
    one = {"max_batch_size": 1, "max_queue_delay": 0, "instances": 1}
    windows = [simulate(TRUTH, one, 0.05, seconds=2000.0, seed=seed) for seed in range(2)]

    fitted = calibrate([*windows, replace(windows[0], arrival_rate=0.0)])

    assert fitted.noise == pytest.approx(TRUTH.noise, rel=0.35)
    assert fitted.gap < 0.001


@pytest.mark.compiled
def test_high_loads_are_simulated_for_a_moment() -> None:
    """At 10,000 requests/s more come in the usual 15 s than a simulated world remembers."""
    truth = ServerModel(table={1: 0.0002, 64: 0.001}, cores=16.0, noise=0.1, cpu_per_request=0.00001)
    two = {"max_batch_size": 64, "max_queue_delay": 0, "instances": 2}
    window = simulate(truth, two, 10_000.0, seconds=1.0)

    fitted = calibrate([window], cores=16.0)

    again = simulate(fitted, two, 10_000.0, seconds=1.0)
    assert again.latency_p95 == pytest.approx(window.latency_p95, rel=0.05)


def test_nothing_to_fit() -> None:
    """Without an undisturbed window there is nothing to fit; callers have no option in common that helps."""
    with pytest.raises(InvalidInput, match=r"^calibration: no undisturbed window in which [a-z ]+$"):
        calibrate([])
