"""The prior: what costs are thought to be before anything was measured.

It comes from a calibrated simulation or from another server. Beyond the paper, whose estimation function
starts from nothing. With a prior the smoother learns by how much reality differs from it; the difference is
smoother than the costs themselves, and needs fewer windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, Self

import numpy as np

from tuner.agents.log_cost import log_costs
from tuner.agents.policy_file import StoredArrays

__all__ = ["InterpolatedPrior", "LogCosts", "Prior", "make_prior"]


class LogCosts(NamedTuple):
    """Expected logarithms of the costs of all configurations: jointly normal.

    They are ``mean + loadings @ z + own * e + leap * f``, with standard normal ``z``, common to all
    configurations of the server, and ``e`` and ``f``, of each alone. A smoother has a deviation of its own in
    place of ``own``; how far a cost may leap it cannot know.
    """

    mean: np.ndarray  # (size,)
    own: np.ndarray  # (size,) standard deviation of each configuration alone
    loadings: np.ndarray  # (size, k); k = 0 where nothing is known of what they have in common
    leap: np.ndarray | None = None  # (size,) standard deviation of a cost that is one of two; None: none is

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviations in all.   # (size,)."""
        leap = 0.0 if self.leap is None else self.leap
        return np.asarray(np.sqrt(self.own**2 + leap**2 + (self.loadings**2).sum(axis=1)))


class Prior(Protocol):
    """What the smoother needs of any prior."""

    @property
    def origin(self) -> str:
        """Where it comes from, in a word or two."""

    @property
    def ready(self) -> bool:
        """Whether it can say anything yet."""

    def watch(self, number: int, seen: Mapping[str, float]) -> bool:
        """Take in what a window of a configuration showed; returns whether expectations changed."""

    def at(self, load: float, left: float = 1.0) -> LogCosts:
        """Return what configurations are expected to cost.

        Args:
            load: Octaves.
            left: Share of the machine that its other processes leave.
        """

    def unlike(self, load: float, left: float = 1.0, width: float = 0.0) -> tuple[str, ...]:
        """Return in which respects the server is unlike all that it learned from; mostly in none.

        Args:
            load: As for `at`.
            left: Likewise.
            width: Of a load level, octaves.
        """

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything it knows, for a saved policy."""


class InterpolatedPrior(NamedTuple):
    """Expected costs at some loads; interpolated in between, those of the nearest load beyond the ends."""

    loads: np.ndarray  # (k,) octaves, increasing, k >= 1
    logs: np.ndarray  # (k, size) logarithms of the costs

    @property
    def origin(self) -> str:
        """Not this server."""
        return "learned elsewhere"

    @property
    def ready(self) -> bool:
        """It always is."""
        return True

    def watch(self, number: int, seen: Mapping[str, float]) -> bool:  # noqa: ARG002 - it is what it is
        """Learn nothing."""
        return False

    def at(self, load: float, left: float = 1.0) -> LogCosts:  # noqa: ARG002 - it is of one machine
        """Return what configurations are expected to cost at a load."""
        size = self.logs.shape[1]
        return LogCosts(self._mean(load), np.zeros(size), np.empty((size, 0)))

    def unlike(self, load: float, left: float = 1.0, width: float = 0.0) -> tuple[str, ...]:  # noqa: ARG002
        """Name the load where it lies beyond the ends by more than a level."""
        return () if self.loads[0] - width <= load <= self.loads[-1] + width else ("load",)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return loads and logarithms."""
        return {"prior_loads": self.loads, "prior_logs": self.logs}

    @classmethod
    def stored(cls, arrays: StoredArrays, size: int) -> Self | None:
        """Read what :meth:`arrays` returned; None if there is nothing of it.

        Args:
            arrays: Of a saved policy.
            size: Number of configurations.

        Raises:
            ValueError: A value is out of range.
            StorageError: An array is missing or of another shape.
        """
        if "prior_loads" not in arrays:
            return None
        loads = arrays.take("prior_loads", (None,))
        logs = arrays.take("prior_logs", (loads.size, size))
        increasing = loads.size and np.isfinite(loads).all() and (np.diff(loads) > 0).all()
        if not (increasing and np.isfinite(logs).all()):
            raise ValueError("its prior has values out of range")
        return cls(loads, logs)

    def _mean(self, load: float) -> np.ndarray:
        right = int(np.searchsorted(self.loads, load))
        if right in (0, self.loads.size):
            return np.asarray(self.logs[min(right, self.loads.size - 1)])
        low, high = self.loads[right - 1], self.loads[right]
        share = (load - low) / (high - low)
        return np.asarray((1.0 - share) * self.logs[right - 1] + share * self.logs[right])


def make_prior(rates: Sequence[float], costs: Callable[[float], np.ndarray]) -> InterpolatedPrior:
    """Make a prior from a simulation.

    Args:
        rates: Loads to simulate, requests/s, each once.
        costs: Rate -> cost of every configuration.   # (size,)
    """
    if not rates or min(rates) <= 0 or len(set(rates)) < len(rates):
        raise ValueError(f"rates must be positive and each once, but got {list(rates)}")
    ordered = sorted(rates)
    logs = np.array([log_costs(costs(rate)) for rate in ordered])
    return InterpolatedPrior(np.log2(ordered), logs)
