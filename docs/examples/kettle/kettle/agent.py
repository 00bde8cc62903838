"""An agent: it measures the corners of the knob space, then holds the best of them."""

from __future__ import annotations

import numpy as np

from tuner.agents.rivals.search import SearchAgent, SearchParameters

__all__ = ["Corners"]


class Corners(SearchAgent[SearchParameters]):
    """The base has the budget, the way to a proposal in allowed steps, and what is saved."""

    name = "corners"

    def _propose(self, level: int) -> int | None:
        ends = np.isin(self.space.coordinates, [0, *(np.array(self.space.shape) - 1)]).all(axis=1)
        left = np.flatnonzero(ends & (self.records[level].count == 0))
        return int(left[0]) if left.size else None
