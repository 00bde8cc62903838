"""An agent: it measures the corners of the knob space, then holds the best of them."""

from __future__ import annotations

import numpy as np

from tuner.agents.rivals.search import SearchAgent, SearchParameters

__all__ = ["Corners"]


class Corners(SearchAgent[SearchParameters]):
    """The base has the budget, the way to a proposal in allowed steps, and what is saved."""

    name = "corners"

    def _propose(self, level: int) -> int | None:
        steps, last = self.space.coordinates, np.array(self.space.shape) - 1  # the last step of each knob
        corners = self.space.canonical[((steps == 0) | (steps == last)).all(axis=1)]
        left = self._unmeasured(level, np.unique(corners))
        return int(left[0]) if left.size else None
