"""How careful the control loop is: every limit once, with its default and the values that it may have."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, fields
from typing import Any

from tuner.errors import InvalidInput

__all__ = ["MOST", "WATCHED", "GuardLimits"]

MOST = 1_000_000
"""Windows, or changes in an hour, that a limit may say."""
RELATIONS = {
    "ge": (operator.ge, "at least"),
    "gt": (operator.gt, "more than"),
    "le": (operator.le, "at most"),
    "lt": (operator.lt, "less than"),
}
"""The bounds of a limit by pydantic's names, which checks them in the daemon's file."""


def _limit(default: Any, **bounds: float) -> Any:
    """Declare a limit with its default and its bounds."""
    return field(default=default, metadata=bounds)


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardLimits:
    """How careful the control loop is."""

    step: float = _limit(2.0, ge=1, le=1000)
    """Farthest step into untried configurations, in grid steps."""
    budget: float = _limit(0.02, gt=0, le=1)
    """Share of the last 100 windows that may break the SLO, or be lost to changes, before exploring stops."""
    patience: int = _limit(10, ge=0, le=MOST)
    """Windows of little known configurations without anything better, after which the search under a load is
    over."""
    retry_after: int = _limit(20, ge=0, le=MOST)
    """Windows for which a configuration that was rolled back is not tried again under that load."""
    stale_after: float = _limit(30.0, gt=0)
    """Age at which a measurement is no longer acted on, s."""
    reloads_per_hour: int = _limit(60, ge=0, le=MOST)
    """Changes within an hour for which the model is loaded again. Like restarts, they are counted for
    rollbacks and restorations, too, but never hold these up."""
    restarts_per_hour: int = _limit(4, ge=0, le=MOST)
    """Changes within an hour for which the server is started again."""
    breaker: int = _limit(3, ge=1, le=MOST)
    """Changes in a row that fail before the circuit breaker opens: none is tried for a while, ever longer."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            for name, bound in one.metadata.items():
                holds, words = RELATIONS[name]
                if not holds(value, bound):
                    raise InvalidInput(f"guard {one.name}", f"must be {words} {bound:g}, but got {value!r}")


WATCHED = GuardLimits(budget=0.04, reloads_per_hour=MOST, restarts_per_hour=MOST)
"""For a short search on a server that nobody depends on: it risks more, to learn within tens of windows."""
