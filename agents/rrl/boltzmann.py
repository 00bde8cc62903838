"""Compiled kernel of RRL's exploration (Qin et al., SC'19, eq. 3).

The caller (``exploration.py``) checks shapes and draws; the plain twin is in ``tests/agents/naive.py``.
"""

from __future__ import annotations

import math

import numpy as np

from tuner._jit import njit

__all__ = ["boltzmann"]


@njit
def boltzmann(values: np.ndarray, beta: float, probabilities: np.ndarray) -> None:
    """Fill in the probabilities ``exp(-beta * value) / sum`` (eq. 3).

    The least value is subtracted first, so that no exponent is positive and the sum is at least 1.

    Args:
        values: Perceived costs of the configurations, one of them finite at least.   # (n,), n >= 1
        beta: At least 0; large values exploit.
        probabilities: Sums to 1 afterwards; modified in place.   # (n,)
    """
    least = values[0]
    for i in range(1, values.size):
        least = min(least, values[i])
    total = 0.0
    for i in range(values.size):
        probabilities[i] = math.exp(-beta * (values[i] - least))
        total += probabilities[i]
    for i in range(values.size):
        probabilities[i] /= total
