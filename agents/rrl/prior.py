"""The prior: what costs are thought to be before anything was measured.

It comes from a calibrated simulation or from another server. Beyond the paper, whose estimation function
starts from nothing. With a prior the smoother learns by how much reality differs from it; the difference is
smoother than the costs themselves, and needs fewer windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tuner.agents.log_cost import log_costs

__all__ = ["Prior", "make_prior"]


class Prior(NamedTuple):
    """Expected costs at some loads; interpolated in between, those of the nearest load beyond the ends."""

    loads: np.ndarray  # (k,) octaves, increasing, k >= 1
    logs: np.ndarray  # (k, size) logarithms of the costs

    def at(self, load: float) -> np.ndarray:
        """Return the logarithms of the costs at a load.   # (size,)."""
        right = int(np.searchsorted(self.loads, load))
        if right in (0, self.loads.size):
            return np.asarray(self.logs[min(right, self.loads.size - 1)])
        low, high = self.loads[right - 1], self.loads[right]
        share = (load - low) / (high - low)
        return np.asarray((1.0 - share) * self.logs[right - 1] + share * self.logs[right])


def make_prior(rates: Sequence[float], costs: Callable[[float], np.ndarray]) -> Prior:
    """Make a prior from a simulation.

    Args:
        rates: Loads to simulate, requests/s, each once.
        costs: Rate -> cost of every configuration.   # (size,)
    """
    if not rates or min(rates) <= 0 or len(set(rates)) < len(rates):
        raise ValueError(f"rates must be positive and each once, but got {list(rates)}")
    ordered = sorted(rates)
    logs = np.array([log_costs(costs(rate)) for rate in ordered])
    return Prior(np.log2(ordered), logs)
