"""What is known about every configuration at one load level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["LevelTable"]


@dataclass(slots=True, eq=False, kw_only=True)
class LevelTable:
    """One state's row of the learner: arrays with an entry per configuration, changed in place.

    An entry becomes known with its first update, by its own measurement or by an estimate from within its
    region. Until then ``q`` holds its optimistic start and ``cost`` NaN.
    """

    q: np.ndarray
    """Perceived discounted cost Q(s, c).   # (size,)."""
    cost: np.ndarray
    """The same with the future left out: the perceived cost of one window; NaN if unknown.   # (size,)."""
    evidence: np.ndarray
    """Summed weight of updates; a measurement weighs 1, an estimate less; 0 if unknown.   # (size,)."""
    visits: np.ndarray
    """Windows in which the configuration itself was measured.   # (size,) int64."""
    windows: int = 0
    """Windows learned from at this level."""

    @classmethod
    def empty(cls, size: int, q0: float) -> LevelTable:
        """Return a table in which nothing is known."""
        return cls(
            q=np.full(size, q0),
            cost=np.full(size, np.nan),
            evidence=np.zeros(size),
            visits=np.zeros(size, dtype=np.int64),
        )

    @property
    def known(self) -> np.ndarray:
        """Numbers of the known configurations, increasing.   # (n,) int64."""
        return np.flatnonzero(self.evidence > 0)

    def least(self) -> tuple[int, float] | None:
        """Return the known configuration with the least learned cost, and that cost; None without any."""
        known = self.known
        if known.size == 0:
            return None
        number = int(known[np.argmin(self.cost[known])])
        return number, float(self.cost[number])

    def weigh(self, region: np.ndarray, measured: int, estimate_weight: float) -> np.ndarray:
        """Add the evidence of one window and return its share of each entry's evidence.

        A measurement weighs 1. An estimate weighs ``estimate_weight``, and less for an entry with
        measurements of its own; the first own measurement outweighs all estimates before it. With a weight
        of 1 estimates weigh as much as measurements, as in the paper.

        Args:
            region: Entries to be updated, each once.   # (n,) int64
            measured: The entry among them that was measured.
            estimate_weight: In 0..1.

        Returns:
            New weight over summed weight, in 0..1; 1 where nothing was known.   # (n,)
        """
        if estimate_weight == 1:
            self.evidence[region] += 1.0
            return np.asarray(1.0 / self.evidence[region])
        weights = estimate_weight / (1.0 + self.visits[region])
        weights[region == measured] = 1.0
        if self.visits[measured] == 0:
            self.evidence[measured] = min(self.evidence[measured], estimate_weight)
        self.evidence[region] += weights
        return np.asarray(weights / self.evidence[region])
