"""Tests of fitting a simulated TensorFlow Serving to measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tuner.envs.batched_server import row_measurement
from tuner.envs.simulator import tfserving_calibration
from tuner.envs.simulator.batched import BatchedSimulator
from tuner.envs.simulator.tfserving_calibration import fit_tfserving, simulate_windows
from tuner.envs.simulator.tfserving_cpu import TFServingCPU
from tuner.envs.simulator.tfserving_gpu import TFServingGPU
from tuner.errors import InvalidInput
from tuner.measurement import Measurement

Model = TFServingCPU | TFServingGPU
Steps = tuple[int, int, int]

CPU = TFServingCPU(
    work=0.2, op_serial=0.1, serial=0.55, contention=0.03, spin=0.06, noise=0.2, overhead=0.005, gap=0.004
)
GPU = TFServingGPU(alpha=0.004, beta=0.03, occupancy=0.6, contention=0.5, noise=0.25)


def measured(model: Model, steps: list[tuple[int, int, int]], rates: tuple[float, ...]) -> list[Measurement]:
    """Windows of 20 s, each with its own randomness; configurations in grid steps."""
    space = model.space()
    simulator = BatchedSimulator(model.plans(space), model.traffic())
    jobs = list(product(rates, (int(np.ravel_multi_index(step, space.shape)) for step in steps)))
    rate, number = np.array(jobs).T
    arrays = simulator.step(number.astype(int), rate, np.arange(len(jobs)).astype(np.uint64) + 100, 20.0)
    return [row_measurement(arrays, row, space.decode(int(n))) for row, n in enumerate(number)]


CASES: dict[str, tuple[Model, list[Steps], tuple[float, float], list[Steps], tuple[float, float]]] = {
    "cpu": (
        CPU,
        [(1, 1, 1), (2, 1, 4), (2, 3, 1), (4, 2, 4), (3, 2, 8), (6, 1, 2), (8, 4, 4)],
        (3.0, 14.0),
        [(2, 2, 5), (5, 2, 3), (7, 1, 3), (4, 4, 2), (3, 1, 9), (6, 3, 5)],
        (6.0, 11.0),
    ),
    "gpu": (
        GPU,
        [(0, 0, 1), (4, 0, 1), (4, 2, 2), (6, 5, 4), (10, 8, 3), (10, 0, 8)],
        (20.0, 61.0),
        [(2, 3, 2), (3, 6, 3), (8, 1, 2), (10, 5, 6), (5, 2, 4), (10, 10, 2)],
        (35.0, 50.0),
    ),
}


@pytest.mark.slow  # a thousand simulations of a dozen windows
@pytest.mark.parametrize("case", CASES)
def test_predicts_what_it_did_not_see(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fitted to a few configurations at two loads, the model predicts others at other loads."""
    monkeypatch.setattr(tfserving_calibration, "REQUESTS", 1000.0)  # enough here, and half the time
    truth, telling, rates, held, others = CASES[case]

    windows = measured(truth, telling, rates)
    fitted = (
        fit_tfserving(windows, TFServingCPU()) if case == "cpu" else fit_tfserving(windows, TFServingGPU())
    )

    windows = measured(truth, held, others)
    for name, within in (("mean", 0.1), ("p95", 0.15)):
        wanted = np.array([m.latency(name) for m in windows])
        errors, before = (
            np.median(np.abs(getattr(simulate_windows(model, windows), name) / wanted - 1.0))
            for model in (fitted, type(truth)())
        )
        assert errors < within
        assert errors < 0.5 * before


def test_a_short_search_comes_nearer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Already one round makes the work of a request right; it needs no perfect start."""
    monkeypatch.setattr(tfserving_calibration, "ROUNDS", 1)
    monkeypatch.setattr(tfserving_calibration, "REQUESTS", 60.0)
    monkeypatch.setattr(tfserving_calibration, "SEARCHED", {TFServingCPU: ("work",)})

    windows = measured(CPU, [(1, 1, 1), (2, 1, 4)], (2.0,))
    fitted = fit_tfserving(windows, CPU.replace(work=0.5, overhead=0.0))

    assert fitted.work == pytest.approx(CPU.work, rel=0.15)
    assert fitted.overhead == pytest.approx(CPU.overhead, rel=0.2)


def test_batches_that_waited_for_their_timeout_are_no_overload(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of 2 ms waits up to 40 ms for more requests: the server keeps up, and the window counts."""
    fitted_to: list[Measurement] = []

    def misfit(start: Model, names: tuple[str, ...], shown: list[Measurement]) -> Callable[..., float]:
        fitted_to.extend(shown)
        return lambda logarithms: float(logarithms @ logarithms)

    monkeypatch.setattr(tfserving_calibration, "_misfit", misfit)
    fast = TFServingGPU(alpha=0.0001, beta=0.002, gap=0.0001, overhead=0.001)
    (window,) = measured(fast, [(10, 8, 3)], (50.0,))
    assert window.queue_mean > 10.0 * window.compute_mean

    fit_tfserving([window], fast)

    assert fitted_to == [window]


def test_batches_count_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 requests/s of 2 rows are a load of 40/s where batches hold rows; on a CPU a request is a run."""
    seen: list[float] = []

    def misfit(start: Model, names: tuple[str, ...], shown: list[Measurement]) -> Callable[..., float]:
        seen.extend(m.arrival_rate for m in shown)
        return lambda logarithms: float(logarithms @ logarithms)

    monkeypatch.setattr(tfserving_calibration, "_misfit", misfit)
    (batched,), (run,) = measured(GPU, [(4, 0, 3)], (20.0,)), measured(CPU, [(2, 1, 4)], (2.0,))

    fit_tfserving([replace(batched, request_rows=2.0)], TFServingGPU())
    fit_tfserving([replace(run, request_rows=2.0)], TFServingCPU())

    assert seen == [2.0 * batched.arrival_rate, run.arrival_rate]


def test_the_use_of_a_gpu_is_no_misfit_of_a_model_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server on a GPU whose threads are knobs, too, is described so: the misfit was not a number."""
    monkeypatch.setattr(tfserving_calibration, "REQUESTS", 60.0)
    (window,) = measured(CPU, [(2, 1, 4)], (2.0,))

    plain, beside = (
        tfserving_calibration._misfit(CPU, ("work",), [one])(np.zeros(1))
        for one in (window, replace(window, gpu=0.4))
    )

    assert 0.0 <= plain == beside


def test_nothing_to_learn_from() -> None:
    """Disturbed and overloaded windows alone are refused; so is a server with other knobs."""
    (window,) = measured(CPU, [(2, 1, 4)], (2.0,))
    (crowded,) = measured(CPU, [(1, 1, 1)], (14.0,))
    other = replace(window, configuration=window.configuration.__class__(instances=1.0))

    for useless in ([], [replace(window, disturbed=("foreign CPU",))], [crowded]):
        with pytest.raises(InvalidInput, match="calibration"):
            fit_tfserving(useless, TFServingCPU())
    with pytest.raises(InvalidInput, match="request_parallelism"):
        fit_tfserving([other], TFServingCPU())
