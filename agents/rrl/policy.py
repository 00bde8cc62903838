"""How greedy RRL's policy is, and when: the paper leaves beta open, its authors' code has another form."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["TEMPERATURES", "geometric", "inverse_logits"]

TEMPERATURES = ("relative", "absolute", "inverse")
"""What the policy's exponent is: ``-beta * Q / least Q``, ``-beta * Q`` (eq. 3), or the authors' code's."""
LARGEST_EXPONENT = 700.0
"""``exp`` overflows beyond."""
CODE_NUMERATOR = 20e6
"""The authors' code: logits are this over Q in microseconds ..."""
CODE_LARGEST = 500.0
"""... and all of them are halved until none is larger than this."""


def geometric(first: float, growth: float, last: float, windows: int) -> float:
    """Return ``first * growth ** windows``, at most ``last``; does not overflow in a year of windows."""
    return min(last, first * math.exp(min(windows * math.log(growth), LARGEST_EXPONENT)))


def inverse_logits(latencies: np.ndarray) -> np.ndarray:
    """Return the logits of the authors' code: 20e6 over the latency in microseconds, halved until <= 500.

    Args:
        latencies: Positive, s.   # (n,)

    Returns:
        The logits of a softmax.   # (n,)
    """
    logits = CODE_NUMERATOR / (latencies * 1e6)
    largest = float(logits.max())
    if largest > CODE_LARGEST:
        logits = logits / 2.0 ** math.ceil(math.log2(largest / CODE_LARGEST))
    return np.asarray(logits)
