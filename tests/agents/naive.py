"""Plain twins of the agents' compiled kernels."""

from __future__ import annotations

import math


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
