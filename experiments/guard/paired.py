"""Paired differences: what a variant changes on the same servers, loads and seeds, with its spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Effect", "effect"]

RESAMPLES, SHARE = 4000, 0.95
"""Of the bootstrap, and how much of it lies between low and high."""
CHANCE = 0.05
"""Probability of such differences by chance (Wilcoxon's signed rank test) from which on they show nothing."""
SEED = 1


class Effect(NamedTuple):
    """How much a figure differs from that of the usual guard."""

    mean: float
    """Mean of the differences."""
    low: float
    high: float
    """Bounds of its bootstrapped 95 % confidence interval."""
    chance: float
    """Probability of such differences by chance, by Wilcoxon's signed rank test."""
    pairs: int
    differing: int
    """How many of the pairs differ at all."""

    @property
    def shows(self) -> bool:
        """Whether the variant changes the figure, by both measures."""
        return self.chance < CHANCE and (self.low > 0 or self.high < 0)


def effect(usual: Sequence[float], other: Sequence[float]) -> Effect:
    """Compare the figures of a variant with those of the usual guard, life by life.

    The test looks at the lives that differ; fewer than six never show anything.
    """
    from scipy import stats

    differences = np.subtract(other, usual)
    differing = int(np.count_nonzero(differences))
    if differing == 0:
        return Effect(0.0, 0.0, 0.0, 1.0, differences.size, 0)
    drawn = np.random.default_rng(SEED).integers(differences.size, size=(RESAMPLES, differences.size))
    low, high = np.quantile(differences[drawn].mean(axis=1), [(1 - SHARE) / 2, (1 + SHARE) / 2])
    # With zeros among them scipy would approximate by a normal distribution: five would show something.
    chance = float(stats.wilcoxon(differences[differences != 0]).pvalue)
    return Effect(float(differences.mean()), float(low), float(high), chance, differences.size, differing)
