"""Whether the load may rise soon, and how far: until a window shows the rise, the configuration stays.

Beyond the paper. Its discounted future is the same for all configurations, because the load does not depend
on them, so that the best at the present load would be best. But when the load rises, the server still runs
what was best before until a window shows the new load, and a configuration that just bears the lower load is
overloaded meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["CARRIED", "Rise", "likely_rise"]

STEP = 0.5
"""Octaves of load (41 %): a larger difference between two windows is neither chance nor a slow change."""
CARRIED = 2
"""Windows for which the server runs the old configuration under the new load: the window in which the load
rises shows both loads, and only the next one decides."""


class Rise(NamedTuple):
    """A rise that may come."""

    window: int
    """Index of a window that had the load which may come."""
    chance: float
    """That it comes in the next window."""


def likely_rise(loads: np.ndarray, load: float) -> Rise | None:
    """Return the rise that is likely from a load; None if the load never rose from there.

    A load that fell may rise again, so rises and falls both count, a half each. Of several loads to which it
    rose the median is expected.

    Args:
        loads: Of the windows so far, in their order, octaves.   # (n,)
        load: Octaves.
    """
    # A change within a window shows as two steps, over a load in between: the second does not count again.
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
