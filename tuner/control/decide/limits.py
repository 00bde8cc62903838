"""What an operator can set of how careful the control loop is: every limit with its default and bounds."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from tuner.errors import InvalidInput

__all__ = ["MOST", "WATCHED", "GuardLimits"]

MOST = 1_000_000
"""Windows, or changes in an hour, that a limit may say."""


def _limit(default: Any, least: float, most: float = MOST) -> Any:
    """Declare a limit with its default and its bounds, which pydantic checks in the daemon's file."""
    return field(default=default, metadata={"ge": least, "le": most})


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardLimits:
    """How careful the control loop is."""

    step: float = _limit(2.0, 1, 1000)
    """Farthest step into untried configurations, in grid steps."""
    budget: float = _limit(0.02, 1e-6, 1)
    """Share of the last 100 windows that may break the SLO, or be lost to changes, before exploring stops."""
    patience: int = _limit(10, 0)
    """Windows of little known configurations without anything better, after which the search under a load is
    over."""
    retry_after: int = _limit(20, 0)
    """Windows for which a configuration that was rolled back is not tried again under that load; each further
    time twice as many, until a window lets it stay."""
    reloads_per_hour: int = _limit(60, 0)
    """Changes within an hour for which the model is loaded again. Like restarts, they are counted for
    rollbacks, restorations and changes to what is known to keep a broken SLO, too, but never hold these up.
    A quarter of either is left for windows that break the SLO."""
    restarts_per_hour: int = _limit(4, 0)
    """Changes within an hour for which the server is started again."""
    breaker: int = _limit(3, 1)
    """Changes in a row that fail before the circuit breaker opens: none is tried for a while, ever longer."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            least, most = one.metadata.values()
            if not least <= value <= most:
                problem = f"must lie between {least:g} and {most:g}, but got {value!r}"
                raise InvalidInput(f"guard {one.name}", problem)


WATCHED = GuardLimits(budget=0.04, reloads_per_hour=MOST, restarts_per_hour=MOST)
"""For a short search on a server that nobody depends on: it risks more, to learn within tens of windows."""
