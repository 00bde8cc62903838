"""Whether the load may rise soon, and how far: a configuration is carried along until a window has shown it.

Beyond the paper, whose discounted future is the same for all configurations, because the load does not depend
on them: what is best at each load would be best. But the server runs what was best for the load before until
the windows show the new one, and what just bears a low load is in overload meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["CARRIED", "Rise", "likely_rise"]

STEP = 0.5
"""Octaves of load (41 %) between two windows that are neither chance nor a slow change."""
CARRIED = 2
"""Windows for which a configuration is carried along: the one in which the load rises shows both loads, and
the next one decides."""


class Rise(NamedTuple):
    """A rise that may come."""

    window: int
    """Index of a window that had the load which may come."""
    chance: float
    """That it comes in the next window."""


def likely_rise(loads: np.ndarray, load: float) -> Rise | None:
    """Return the rise that is likely from a load; None if there never was one.

    A load that fell may rise again: both count, a half each. Of several loads that may come it is the middle
    one.

    Args:
        loads: Of the windows so far, in their order, octaves.   # (n,)
        load: Octaves.
    """
    # The window in which the load changes shows one in between: the second of two steps is no change again.
    change = np.diff(loads)
    ways = np.where(np.abs(change) > STEP, np.sign(change), 0.0)
    changes = np.flatnonzero((ways != 0) & (ways != np.append(0.0, ways[:-1])))
    peaks = []
    for at in changes.tolist():
        before, after = np.arange(max(at - 1, 0), at + 1), np.arange(at + 1, min(at + 3, loads.size))
        low, high = (before, after) if ways[at] > 0 else (after, before)
        if abs(loads[low].min() - load) <= STEP:
            peaks.append(int(high[loads[high].argmax()]))
    if not peaks:
        return None
    middle = sorted(peaks, key=lambda window: loads[window])[len(peaks) // 2]
    near = int(np.count_nonzero(np.abs(loads - load) <= STEP))
    return Rise(middle, len(peaks) / 2 / (near + 1))
