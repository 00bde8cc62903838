"""Fits a simulated TensorFlow Serving to measurements of a real one.

All constants that windows can show are searched together, so that simulated and measured windows agree best
in what was measured: mean, median and p95 of the latency, execution time, CPU and GPU (mean absolute
logarithm of the ratio). One call of the batched simulator simulates each window at its own load and
configuration. Every evaluation uses the same random numbers, so that the misfit is a function of the
constants alone; scipy's Powell method minimises it. A constant that no window shows stays near the base's:
the search is over the factor on the base's value, and a large factor costs a little.

The overhead (network and client) is no part of the search: it is the median over windows of what the client
waited beyond queue and execution. Overloaded windows are left out: their queue grows with their length,
whatever the constants.

A request of a simulated server that batches has one row: there requests of several count as one for each, and
so do loads.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from tuner.envs.simulator.batched import BatchedSimulator, WindowArrays
from tuner.envs.simulator.calibration import in_rows, overhead, steady
from tuner.envs.simulator.tfserving_cpu import TFServingCPU
from tuner.envs.simulator.tfserving_gpu import TIMEOUT, TFServingGPU
from tuner.errors import InvalidInput
from tuner.measurement import Measurement

__all__ = ["SEARCHED", "fit_tfserving", "simulate_windows"]

Model = TypeVar("Model", TFServingCPU, TFServingGPU)

SEARCHED = {
    TFServingCPU: (
        "work", "op_serial", "serial", "contention", "switching", "spin", "gap", "noise", "cpu_per_request",
    ),
    TFServingGPU: (
        "alpha", "beta", "occupancy", "contention", "switching", "gap", "noise", "cpu_per_request",
        "cpu_per_batch",
    ),
}  # fmt: skip
"""Constants that are searched, by model."""
SHARES = ("op_serial", "serial", "spin", "occupancy")
"""Constants that are shares, at most 1."""
STATISTICS = (
    ("latency_mean", "mean"),
    ("latency_p50", "p50"),
    ("latency_p95", "p95"),
    ("compute_mean", "compute_mean"),
    ("cpu", "cpu"),
    ("gpu", "gpu"),
)
"""What is compared: name in a measurement, name in :class:`WindowArrays`."""
REQUESTS = 2000.0
"""Simulated requests per window, at the lowest load."""
WIDEST = math.log(30.0)
"""Logarithm of the largest factor on a constant of the base."""
PULL = 0.002
"""Misfit that a factor of e on one constant costs: a constant that no window shows stays at the base's
value."""
SOFTEN = 0.0005
"""Added to both sides of a ratio, so that differences of microseconds do not count."""
ROUNDS = 6
"""Rounds of the search at most; each goes through all constants."""


def fit_tfserving(measurements: Sequence[Measurement], base: Model) -> Model:
    """Describe a server as a simulation that behaves as measurements of it show.

    Args:
        measurements: Windows of one server, best some with one thread of everything, some with several, at
            two loads; each with the model's three knobs in its configuration. Disturbed ones are ignored.
        base: What is not measured comes from here: cores, the form of the graph, what a restart takes.

    Raises:
        InvalidInput: No undisturbed window in which the server kept up, or a knob is missing.
    """
    shown = [m for m in measurements if not m.disturbed and m.requests and steady(m, TIMEOUT)]
    if isinstance(base, TFServingGPU):  # whose batches hold rows; on a CPU a request is a run
        shown = [in_rows(m) for m in shown]
    if not shown:
        raise InvalidInput(
            "calibration", "no undisturbed window in which the server kept up", "lower the load"
        )
    start = base.replace(overhead=overhead(shown, base.overhead))
    names = SEARCHED[type(base)]
    misfit = _misfit(start, names, shown)
    from scipy.optimize import minimize

    found = minimize(
        misfit,
        np.zeros(len(names)),
        method="Powell",
        bounds=[(-WIDEST, WIDEST)] * len(names),
        options={"maxiter": ROUNDS, "xtol": 0.01, "ftol": 0.001},
    )
    return _changed(start, names, found.x)


def simulate_windows(model: TFServingCPU | TFServingGPU, measured: Sequence[Measurement]) -> WindowArrays:
    """Simulate windows at the loads and configurations of measured ones, all alike in length.

    Raises:
        InvalidInput: A configuration lacks one of the model's knobs.
    """
    names = model.space().names
    for name in names:
        if any(name not in m.configuration for m in measured):
            raise InvalidInput("calibration", f"a window's configuration lacks {name}")
    space = model.space({name: tuple(sorted({m.configuration[name] for m in measured})) for name in names})
    simulator = BatchedSimulator(model.plans(space), model.traffic(), workers=1)
    rates = np.array([m.arrival_rate for m in measured])
    numbers = [space.encode({name: m.configuration[name] for name in names}) for m in measured]
    return simulator.step(
        np.array(numbers), rates, np.ones(rates.size, np.uint64), REQUESTS / float(rates.min())
    )


def _misfit(
    start: Model, names: tuple[str, ...], shown: Sequence[Measurement]
) -> Callable[[np.ndarray], float]:
    """Return the function that is minimised: of the logarithms of factors on the constants."""
    wanted = {ours: np.array([getattr(m, theirs) for m in shown]) for theirs, ours in STATISTICS}
    wanted = {name: values for name, values in wanted.items() if (values > 0).any()}
    if not start.traffic().on_gpu:
        wanted.pop("gpu", None)  # what the model does not have; one on a GPU may have threads as knobs, too

    def misfit(logarithms: np.ndarray) -> float:
        arrays = simulate_windows(_changed(start, names, logarithms), shown)
        errors = [
            np.nanmean(np.abs(np.log((getattr(arrays, name) + SOFTEN) / (values + SOFTEN))))
            for name, values in wanted.items()
        ]
        return float(np.mean(errors) + PULL * np.abs(logarithms).sum())

    return misfit


def _changed(start: Model, names: tuple[str, ...], logarithms: np.ndarray) -> Model:
    """Return the model with factors on some constants; shares stay at most 1."""
    changes = {}
    for name, logarithm in zip(names, logarithms, strict=True):
        value = getattr(start, name) * math.exp(logarithm)
        changes[name] = min(value, 1.0) if name in SHARES else value
    return dataclasses.replace(start, **changes)
