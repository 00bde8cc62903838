"""Compiled kernel of RRL's region update (Qin et al., SC'19, eq. 2).

The caller (``table/perception.py``) checks shapes; the plain twin is in ``tests/agents/naive.py``.
"""

from __future__ import annotations

import numpy as np

from tuner._jit import njit

__all__ = ["region_update"]


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
