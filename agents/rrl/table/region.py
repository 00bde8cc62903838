"""Compiled kernels of region-based reinforcement learning: the region update and the Boltzmann policy.

Qin et al., SC'19, equations 2 and 3. Shapes are checked and randomness is drawn by the caller
(``rrl.py``); the plain twins are in ``tests/agents/naive.py``.
"""

from __future__ import annotations

import math

import numpy as np

from tuner._jit import njit

__all__ = ["boltzmann", "region_update"]


@njit
def region_update(
    q: np.ndarray, region: np.ndarray, estimates: np.ndarray, rates: np.ndarray, future: float
) -> None:
    """Move the perceived costs of one region toward what one window says (eq. 2).

    Args:
        q: Perceived cost of each configuration; modified in place.   # (size,)
        region: Numbers of the configurations in C(c_t), each once.   # (n,) int64
        estimates: Estimated cost of each of them, r_hat.   # (n,)
        rates: Learning rate of each of them, a_t in 0..1.   # (n,)
        future: ``gamma * min Q(s', c)``, the same for all of them.
    """
    for i in range(region.size):
        c = region[i]
        q[c] = (1.0 - rates[i]) * q[c] + rates[i] * (estimates[i] + future)


@njit
def boltzmann(values: np.ndarray, beta: float, probabilities: np.ndarray) -> None:
    """Fill in the probabilities ``exp(-beta * value) / sum`` (eq. 3).

    The least value is subtracted first, so that no exponent is positive and the sum is at least 1.

    Args:
        values: Perceived costs of the configurations that may be chosen, finite.   # (n,), n >= 1
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
