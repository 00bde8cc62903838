"""Which configurations may be explored: those whose cost is nearly sure to keep the SLO.

Beyond the paper. A cost of at most 1 keeps the SLO (:mod:`tuner.objective`), so the upper bound of what is
expected decides. Where none is sure to keep it there is no safe choice: then all may be explored, for a
configuration that keeps it has to be found first.
"""

from __future__ import annotations

import numpy as np

__all__ = ["safe"]


def safe(mean: np.ndarray, deviation: np.ndarray, caution: float) -> np.ndarray:
    """Return which configurations may be chosen.

    Args:
        mean: Expected logarithm of the cost.   # (n,)
        deviation: Its standard deviation.   # (n,)
        caution: Standard deviations between the mean and the upper bound; 0 trusts the mean.

    Returns:
        True for each that may; all, if there is none that keeps the SLO.   # (n,) bool
    """
    kept = mean + caution * deviation <= 0.0
    return np.asarray(kept if kept.any() else np.ones(mean.size, dtype=bool))
