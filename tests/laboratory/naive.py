"""The laboratory's measures, written to be seen to be right."""

from __future__ import annotations

import math

import numpy as np


def running_mean(values: np.ndarray, span: int) -> list[float]:
    """Mean of the last ``span`` measured values at each place."""
    found = []
    for place in range(len(values)):
        measured = [v for v in values[max(0, place - span + 1) : place + 1] if math.isfinite(v)]
        found.append(sum(measured) / len(measured) if measured else math.nan)
    return found


def windows_to_converge(
    expected: np.ndarray, best: np.ndarray, *, span: int = 10, near: float = 1.05
) -> float:
    """Try every window, from the first on, and look whether all later ones are near."""
    chosen, oracle = running_mean(expected, span), running_mean(best, span)
    for window in range(len(expected) - span + 1):
        if all(chosen[later] <= near * oracle[later] for later in range(window, len(expected))):
            return float(window + 1)
    return math.inf
