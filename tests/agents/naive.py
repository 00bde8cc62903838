"""Plain twins of the agents' compiled kernels."""

from __future__ import annotations

import math

import numpy as np

from tuner.agents.rrl.covariance import Hyperparameters


def region_update(
    q: list[float], region: list[int], estimates: list[float], rates: list[float], future: float
) -> list[float]:
    """RRL, eq. 2, for every configuration of the region."""
    new = list(q)
    for c, estimate, rate in zip(region, estimates, rates, strict=True):
        new[c] = (1 - rate) * q[c] + rate * (estimate + future)
    return new


def boltzmann(values: list[float], beta: float) -> list[float]:
    """RRL, eq. 3, as it is written; overflows for large values."""
    weights = [math.exp(-beta * value) for value in values]
    return [weight / sum(weights) for weight in weights]


def covariance(a: np.ndarray, b: np.ndarray, hyper: Hyperparameters) -> list[list[float]]:
    """The smoother's prior covariance: Matern 5/2, a trend over the load, the machines."""

    def one(x: list[float], y: list[float]) -> float:
        axes = len(hyper.inverse_reach)
        distance = math.sqrt(sum(((x[q] - y[q]) * hyper.inverse_reach[q]) ** 2 for q in range(axes)))
        root = math.sqrt(5) * distance
        alike = hyper.variance * (1 + root + 5 * distance**2 / 3) * math.exp(-root)
        same = x[axes] == y[axes]
        return (alike + hyper.offset if same else alike * hyper.shared) + hyper.slope * x[axes - 1] * y[
            axes - 1
        ]

    return [[one(x, y) for y in b.tolist()] for x in a.tolist()]
