"""Compiled kernels of the smoother: the prior covariance of two measurements, and its derivatives.

The caller (``smoothing.py``) checks shapes; the plain twins are in ``tests/agents/naive.py``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tuner._jit import njit

__all__ = ["Hyperparameters", "contract", "covariance"]


class Hyperparameters(NamedTuple):
    """The constants of the covariance. Points are rows: a coordinate per knob, the load, the era."""

    inverse_reach: np.ndarray  # (knobs + 1,) one over octaves; of each knob, and of the load last
    variance: float  # of the logarithm of the cost
    shared: float  # correlation between two eras
    slope: float  # variance of a linear trend over the load, per octave^2
    offset: float  # variance of an era's own offset, the same for all configurations


@njit
def covariance(a: np.ndarray, b: np.ndarray, hyper: Hyperparameters, out: np.ndarray) -> None:
    """Fill in the prior covariance of the logarithms of two sets of costs.

    Matern 5/2 over knobs and load, a linear trend over the load, and an offset per era; ``smoothing.py`` says
    why.

    Args:
        a: Points.   # (n, knobs + 2)
        b: Points.   # (m, knobs + 2)
        hyper: The constants.
        out: Modified in place.   # (n, m)
    """
    axes = hyper.inverse_reach.size
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            squared = 0.0
            for q in range(axes):
                step = (a[i, q] - b[j, q]) * hyper.inverse_reach[q]
                squared += step * step
            root = math.sqrt(5.0 * squared)
            alike = hyper.variance * (1.0 + root + root * root / 3.0) * math.exp(-root)
            if a[i, axes] == b[j, axes]:
                alike += hyper.offset
            else:
                alike *= hyper.shared
            out[i, j] = alike + hyper.slope * a[i, axes - 1] * b[j, axes - 1]


@njit
def contract(points: np.ndarray, weight: np.ndarray, hyper: Hyperparameters, out: np.ndarray) -> None:
    """Sum ``weight * d covariance / d parameter`` over all pairs of points, per parameter.

    Args:
        points: Rows as for :func:`covariance`.   # (n, knobs + 2)
        weight: Symmetric.   # (n, n)
        hyper: The constants.
        out: By the logarithm of each reach, then of the standard deviation; modified in place.
            # (knobs + 2,)
    """
    axes = hyper.inverse_reach.size
    out[:] = 0.0
    squares = np.empty(axes)
    for i in range(points.shape[0]):
        for j in range(i + 1):
            squared = 0.0
            for q in range(axes):
                step = (points[i, q] - points[j, q]) * hyper.inverse_reach[q]
                squares[q] = step * step
                squared += squares[q]
            root = math.sqrt(5.0 * squared)
            pair = weight[i, j] * hyper.variance * math.exp(-root)
            if i != j:
                pair *= 2.0  # and (j, i)
            if points[i, axes] != points[j, axes]:
                pair *= hyper.shared
            for q in range(axes):
                out[q] += pair * 5.0 / 3.0 * (1.0 + root) * squares[q]
            out[axes] += 2.0 * pair * (1.0 + root + root * root / 3.0)
