"""The threshold of the policy ``drs``: hill climbing on the goodput, as DeepRecSys does."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tuner.cluster.goodput import TOLERANCE, Good, Goodput, goodput
from tuner.cluster.scenario import Scenario

__all__ = ["Climb", "climb_threshold"]

STEP = 160
"""Items of the first step; halved at every top, down to ``LAST_STEP``."""
LAST_STEP = 10


class Climb(NamedTuple):
    """The result of hill climbing."""

    threshold: int
    """Items."""
    best: Goodput
    """The goodput with this threshold."""
    trials: dict[int, float]
    """Goodput by threshold, requests/s, in the order of the trials; 0 if less than the best before."""


def climb_threshold(
    scenario: Scenario,
    *,
    good: Good = Good(),  # noqa: B008 - it does not change
    tolerance: float = TOLERANCE,
    progress: Callable[[int, float], None] | None = None,
) -> Climb:
    """Climb from the middle of the sizes that come, with shorter and shorter steps.

    As long as nothing is served, go down, towards a threshold of 0: what only base instances serve in time
    goes to others.

    Args:
        scenario: Under the policy ``drs``; its own threshold is ignored. All sessions get the same.
        good: Which bad rates are good.
        tolerance: Of each goodput, as in :func:`~tuner.cluster.goodput.goodput`.
        progress: Called with every threshold and its goodput.
    """
    largest = max(probability.size - 1 for probability in scenario.size_probabilities)
    found: dict[int, Goodput] = {}

    def height(threshold: int) -> float:
        if threshold not in found:
            tried = scenario.model_copy(update={"options": {**scenario.options, "threshold": threshold}})
            best = max((one.rate for one in found.values()), default=0.0)
            found[threshold] = goodput(tried, good=good, tolerance=tolerance, at_least=best)
            if progress:
                progress(threshold, found[threshold].rate)
        return found[threshold].rate

    here, step = min(largest // 2 // LAST_STEP * LAST_STEP, largest), STEP
    while step >= LAST_STEP:
        near = [min(max(here + way * step, 0), largest) for way in (-1, 1)]
        there = max(near, key=height)
        if height(there) > height(here):
            here = there
        elif height(here) == 0 and here > 0:
            here = near[0]
        else:
            step //= 2
    return Climb(here, found[here], {threshold: one.rate for threshold, one in found.items()})
