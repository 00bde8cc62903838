"""Which configurations may be explored: no gambles, and on request none that may break the SLO.

Beyond the paper, which explores whatever the Boltzmann policy draws.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["bearable", "safe"]

RISK, RISK_WHILE_BROKEN = 0.2, 0.5
"""A configuration may be explored if its cost is at most this far above the least, both at their worst: one
standard deviation above what is expected. These are differences of logarithms, so 22 and 65 %. The second
holds while no configuration is thought to keep the SLO at its worst. A limit is needed because one window in
overload may cost more than fifty that are a few per cent above the best; ``docs/estimator.md`` says what was
measured. The limits hold only with the neural estimator, which says how dear a configuration may be."""
SHARE_RISKED, SHARE_WHILE_BROKEN = 0.001, 0.02
"""After n windows at a load a cost may be above the least by n times this share, if that is more than the
limit above. The more windows there were, the less a dear one adds to their mean, and so what was a gamble at
first is not left out for ever. While nothing is thought to keep the SLO there is less to lose."""


def bearable(worst: np.ndarray, broken: float = -math.inf, windows: int = 0) -> np.ndarray:
    """Return which configurations may be explored: those that are no gamble beside the best at its worst.

    Args:
        worst: Logarithm of the cost, a standard deviation above what is expected.   # (n,)
        broken: Logarithm of the cost where the SLO is just broken, if the cost leaps there: the least use is
            found near the SLO, and who never breaks it by a little does not find it.
        windows: How many were measured at this load: a dear one adds the less to their mean, the more there
            are, and what was a gamble at first is not left out for ever.

    Returns:
        True for each that may be explored, one of them at least.   # (n,) bool
    """
    least = float(worst.min())
    risk, share = (RISK, SHARE_RISKED) if least <= 0.0 else (RISK_WHILE_BROKEN, SHARE_WHILE_BROKEN)
    most = least + max(risk, math.log1p(share * windows))
    return np.asarray(worst <= max(most, broken + RISK))


def safe(mean: np.ndarray, deviation: np.ndarray, caution: float) -> np.ndarray:
    """Return which configurations may be explored: those whose cost is nearly sure to keep the SLO.

    A cost of at most 1 keeps the SLO (:mod:`tuner.objective`), so the upper bound of the
    prediction decides. If no configuration is sure to keep it, all may be explored: one that does has to be
    found first.

    Args:
        mean: Expected logarithm of the cost.   # (n,)
        deviation: Its standard deviation.   # (n,)
        caution: Standard deviations between the mean and the upper bound; 0 trusts the mean.

    Returns:
        True for each that may be explored.   # (n,) bool
    """
    kept = mean + caution * deviation <= 0.0
    return np.asarray(kept if kept.any() else np.ones(mean.size, dtype=bool))
