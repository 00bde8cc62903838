"""Why an agent thinks of a configuration as it does, in words an operator can check."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Explanation"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Why the agent thinks of a configuration as it does. Costs are of one window; NaN stands for unknown."""

    level: int
    configuration: int
    text: str
    """The configuration as people write it."""
    cost: float
    """Learned cost."""
    visits: int
    """Windows in which it was measured at this level."""
    windows: int
    """Windows learned from at this level."""
    best: int
    """The best known configuration among those allowed."""
    best_text: str
    best_cost: float
    probability: float
    """With which :meth:`RRL.select` would choose it now among those allowed; 0 if it is not allowed."""

    def __str__(self) -> str:
        cost = "nothing is known of its cost" if math.isnan(self.cost) else f"learned cost {self.cost:.3f}"
        return (
            f"{self.text}: {cost}, measured in {self.visits} of {self.windows} windows at load level "
            f"{self.level}; best known {self.best_text} ({self.best_cost:.3f}); "
            f"chosen with probability {self.probability:.2f}"
        )
