"""What it is worth to run a configuration next: what its window costs, and what that teaches for later ones.

Beyond the paper, which draws from what it perceives alone. This is the knowledge gradient for correlated
normal beliefs (Ryzhov, Powell and Frazier, "The knowledge gradient algorithm for a general class of online
learning problems", Operations Research 60, 2012, section 4): run what makes the next window and those after
it cheapest together, if from then on the configuration runs that looks the best by then. It weighs what an
optimistic cost, mean less deviation, does not: how dear the window itself may be, whether what it shows can
change the choice at all, and what it tells of other configurations.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["horizon", "regrets"]

FALL, LEAST_HORIZON = 0.5, 5.0
"""The horizon falls by this much with each window at a load, to no less than this many windows. It is half
of what would be left of a load that lasts twice as long as the horizon at first: that only one window is
looked ahead values it too high, for what this one does not show the next ones would."""

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
"""Where a standard normal number is evaluated to take means over it, and with which weights."""
WEIGHTS = WEIGHTS / math.sqrt(2.0 * math.pi)


def horizon(first: float, windows: int) -> float:
    """Return for how many windows it counts what a window teaches, that window included.

    Args:
        first: For how many it does while nothing was measured at this load.
        windows: How many were measured since the machine changed last.
    """
    return max(first - FALL * windows, LEAST_HORIZON)


def regrets(mean: np.ndarray, covariance: np.ndarray, noise: float, windows: float) -> np.ndarray:
    """Return by how much dearer each choice of the next configuration is expected to be than the best choice.

    Args:
        mean: Of the logarithm of each cost; all costs are taken for log-normal.   # (n,), n >= 1
        covariance: Of these logarithms.   # (n, n)
        noise: Variance of the logarithm of the cost that a window shows, about the cost; positive.
        windows: How many count, the next one included; at least 1.

    Returns:
        Costs summed over these windows, less those of the best choice; 0 for that.   # (n,)
    """
    variance = np.diagonal(covariance)
    # What a window of the configuration of a row moves the means by, per standard normal number.
    moved = covariance / np.sqrt(variance + noise)[:, None]
    left = mean + 0.5 * np.maximum(variance - moved**2, 0.0)
    later = np.zeros(mean.size)
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        later += weight * np.exp((left + moved * node).min(axis=1))
    total = np.exp(mean + 0.5 * variance) + (windows - 1.0) * later
    return np.asarray(total - total.min())
