"""Random search: measures configurations drawn uniformly, each once, then holds the best.

The yardstick that any method has to beat. With n draws the best of them is among the best share q of all
configurations with probability ``1 - (1 - q) ** n``: 60 draws find one of the best 5 % in 95 of 100 runs.
"""

from __future__ import annotations

from tuner.agents.rivals.search import SearchAgent, SearchParameters

__all__ = ["RandomSearch"]


class RandomSearch(SearchAgent[SearchParameters]):
    """The agent."""

    name = "random"

    def _propose(self, level: int) -> int | None:
        left = self._unmeasured(level, self.space.distinct)
        return int(self._generator.choice(left)) if left.size else None
