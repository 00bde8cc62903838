"""Which configurations may be explored: no gambles, and on request none that may break the SLO.

Beyond the paper, which explores whatever the Boltzmann policy draws.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["bearable", "safe"]

RISK, RISK_WHILE_BROKEN = 0.2, 0.5
"""With the neural estimator, configurations are explored whose cost is at worst (one standard deviation above
what is expected) this much above the least such cost, in logarithms: less where something is thought to keep
the SLO than where nothing is. A window in overload may cost more than 50 a few per cent above the best;
``docs/estimator.md`` says what was measured."""
SHARE_RISKED, SHARE_WHILE_BROKEN = 0.001, 0.02
"""A window may cost as much more than the best as this share of all windows at that load costs; where nothing
is thought to keep the SLO there is less to lose."""


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
