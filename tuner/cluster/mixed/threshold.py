"""The threshold of the policy ``drs``: hill climbing on the allowable throughput, as DeepRecSys does."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tuner.cluster.mixed.cluster import MixedCluster
from tuner.cluster.mixed.throughput import Allowable, allowable_throughput

__all__ = ["Climb", "climb_threshold"]

STEP = 160
"""Items, of the first steps; halved at every top, down to the last."""
LAST_STEP = 10


class Climb(NamedTuple):
    """Where it ended, and what it tried."""

    threshold: int
    """Items."""
    best: Allowable
    """With it."""
    trials: dict[int, float]
    """Allowable throughput by threshold, queries/s, in the order they were tried; 0 if less than before."""


def climb_threshold(cluster: MixedCluster, *, progress: Callable[[int, float], None] | None = None) -> Climb:
    """Climb from the middle of the sizes that come, with ever shorter steps.

    Args:
        cluster: Under the policy ``drs``; the threshold that it has does not matter. All sessions get one.
        progress: Told of every threshold and its throughput.
    """
    largest = max(sizes.largest for sizes in cluster.sizes)
    found: dict[int, Allowable] = {}

    def height(threshold: int) -> float:
        if threshold not in found:
            tried = cluster.changed(options={**cluster.options, "threshold": threshold})
            best = max((one.rate for one in found.values()), default=0.0)
            found[threshold] = allowable_throughput(tried, at_least=best)
            if progress:
                progress(threshold, found[threshold].rate)
        return found[threshold].rate

    here, step = min(largest // 2 // LAST_STEP * LAST_STEP, largest), STEP
    while step >= LAST_STEP:
        near = [min(max(here + way * step, 0), largest) for way in (-1, 1)]
        there = max(near, key=height)
        if height(there) > height(here):
            here = there
        else:
            step //= 2
    return Climb(here, found[here], {threshold: one.rate for threshold, one in found.items()})
