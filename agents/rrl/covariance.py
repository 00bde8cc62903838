"""The smoother's prior covariance of two measurements, and its derivatives.

The caller (``smoothing.py``) checks shapes; the plain twins are in ``tests/agents/naive.py``. Distances come
from one matrix product, and everything after it works in place: over 1,331 configurations a matrix has some
hundred thousand elements.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Hyperparameters", "by_machine", "contract", "covariance"]


class Hyperparameters(NamedTuple):
    """The constants of the covariance. Points are rows: a coordinate per knob, the load, the machine."""

    inverse_reach: np.ndarray  # (knobs + 1,) one over octaves; of each knob, and of the load last
    variance: float  # of the logarithm of the cost
    shared: float  # correlation between two machines
    slope: float  # variance of a linear trend over the load, per octave^2
    offset: float  # variance of a machine's own offset, the same for all configurations


def covariance(a: np.ndarray, b: np.ndarray, hyper: Hyperparameters) -> np.ndarray:
    """Return the prior covariance of the logarithms of two sets of costs.   # (n, m).

    Matern 5/2 over knobs and load, a linear trend over the load, and an offset per machine; ``smoothing.py``
    says why.

    Args:
        a: Points.   # (n, knobs + 2)
        b: Points.   # (m, knobs + 2)
        hyper: The constants.
    """
    root = _distances(a, b, hyper)
    alike = _growth(root)
    np.negative(root, out=root)
    alike *= np.exp(root, out=root)
    alike *= by_machine(a, b, hyper.variance, hyper.variance * hyper.shared)
    alike += by_machine(a, b, hyper.offset, 0.0)
    if hyper.slope:
        alike += hyper.slope * a[:, -2, None] * b[None, :, -2]
    return alike


def contract(points: np.ndarray, weight: np.ndarray, hyper: Hyperparameters) -> np.ndarray:
    """Return the sum of ``weight * d covariance / d parameter`` over all pairs of points, per parameter.

    Args:
        points: Rows as for :func:`covariance`.   # (n, knobs + 2)
        weight: Symmetric.   # (n, n)
        hyper: The constants.

    Returns:
        By the logarithm of each reach, then of the standard deviation.   # (knobs + 2,)
    """
    root = _distances(points, points, hyper)
    pair = weight * by_machine(points, points, hyper.variance, hyper.variance * hyper.shared) * np.exp(-root)
    of_deviation = 2.0 * float((pair * _growth(root)).sum())
    pair *= 5.0 / 3.0 * (1.0 + root)
    axes = points[:, :-1] * hyper.inverse_reach
    # The sum of p_ij (x_i - x_j)^2, with p symmetric, for each axis x.
    of_reaches = 2.0 * (pair.sum(axis=1) @ axes**2 - (axes * (pair @ axes)).sum(axis=0))
    return np.append(of_reaches, of_deviation)


def by_machine(a: np.ndarray, b: np.ndarray, one: float, two: float) -> np.ndarray | float:
    """Return a number for each pair of points, by whether they are of one machine or of two.   # (n, m).

    Mostly there is one machine, and one number stands for all: a matrix of it takes as long as the distances.
    """
    machines = np.concatenate([a[:, -1], b[:, -1]])
    if (machines == machines[:1]).all():
        return one
    return np.where(a[:, -1, None] == b[None, :, -1], one, two)


def _distances(a: np.ndarray, b: np.ndarray, hyper: Hyperparameters) -> np.ndarray:
    """Return the distances in reaches, times the square root of 5.   # (n, m)."""
    left, right = a[:, :-1] * hyper.inverse_reach, b[:, :-1] * hyper.inverse_reach
    squared = left @ (-2.0 * right.T)
    squared += (left * left).sum(axis=1)[:, None]
    squared += (right * right).sum(axis=1)
    np.maximum(squared, 0.0, out=squared)  # rounding can make a square negative
    squared *= 5.0
    return np.asarray(np.sqrt(squared, out=squared))


def _growth(root: np.ndarray) -> np.ndarray:
    """Return the polynomial of the Matern 5/2 covariance, ``1 + r + r^2 / 3``.   # as the roots."""
    grown = root / 3.0
    grown += 1.0
    grown *= root
    grown += 1.0
    return np.asarray(grown)
