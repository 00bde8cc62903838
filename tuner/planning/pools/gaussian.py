"""A Gaussian process over few points, and the expected improvement at others (for the Bayesian search).

Matern kernel with nu = 5/2, as Ribbon uses; its length is that of a short list under which what was seen is
most likely. Values are standardised, so that the process needs no other parameter.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

__all__ = ["expected_improvement"]

LENGTHS = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Of the kernel, where each coordinate goes from 0 to 1."""
JITTER = 1e-6
"""Variance of a single observation, of a process with variance 1."""


class _Fit(NamedTuple):
    length: float
    factor: np.ndarray  # (m, m) Cholesky factor of the covariance
    weights: np.ndarray  # (m,) inverse covariance times values
    likelihood: float  # logarithm, less a constant


def expected_improvement(points: np.ndarray, values: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Return by how much each candidate is expected to exceed the best value, in standard deviations.

    Args:
        points: Where values were seen, in 0..1.   # (m, T)
        values: What was seen there.   # (m,)
        candidates: Where to predict.   # (c, T)

    Returns:
        At least 0.   # (c,)
    """
    spread = values.std()
    standard = (values - values.mean()) / (spread if spread > 0 else 1.0)
    fit = max((_fit(points, standard, length) for length in LENGTHS), key=lambda fit: fit.likelihood)
    near = _matern(candidates, points, fit.length)  # (c, m)
    mean = near @ fit.weights
    explained = np.linalg.solve(fit.factor, near.T)  # (m, c)
    deviation = np.sqrt(np.maximum(1 - (explained**2).sum(axis=0), 1e-12))
    score = (mean - standard.max()) / deviation
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in score.tolist()])
    density = np.exp(-0.5 * score**2) / math.sqrt(2 * math.pi)
    return np.asarray(np.maximum(deviation * (score * below + density), 0.0))


def _fit(points: np.ndarray, values: np.ndarray, length: float) -> _Fit:
    covariance = _matern(points, points, length) + JITTER * np.eye(len(points))
    factor = np.linalg.cholesky(covariance)
    half = np.linalg.solve(factor, values)
    likelihood = -0.5 * float(half @ half) - float(np.log(np.diag(factor)).sum())
    return _Fit(length, factor, np.linalg.solve(factor.T, half), likelihood)


def _matern(left: np.ndarray, right: np.ndarray, length: float) -> np.ndarray:
    """Return the covariance of two sets of points.   # (a, b)."""
    squared = ((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2)
    distance = np.sqrt(5 * squared) / length
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance))
