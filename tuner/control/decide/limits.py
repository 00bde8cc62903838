"""How careful the control loop is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.errors import InvalidInput

__all__ = ["WATCHED", "GuardLimits"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardLimits:
    """How careful the control loop is."""

    step: float = 2.0
    """Farthest step into untried configurations, in grid steps."""
    cooldown: int = 0
    """Windows to hold after a change that proved good."""
    rollback_cooldown: int = 1
    """Windows to hold after a rollback."""
    budget: float = 0.02
    """Share of the last windows that may break the SLO, or be lost to changes, before exploring stops."""
    horizon: int = 100
    """How many windows the error budget looks back."""
    gain: float = 0.1
    """Least relative gain for which the server is switched between configurations already tried: two windows
    of the same differ by as much."""
    payback: bool = True
    """Whether that gain must also make up for what changes cost before the load is expected to move on, and
    for what comes afterwards."""
    patience: int = 10
    """Windows without such a gain under one load after which the search is over and the best stays."""
    review: int = 100
    """When the search is over, every so many windows one step is explored, in case the server has changed."""
    retry_after: int = 20
    """Windows for which a configuration that was rolled back is not tried again under that load."""
    stale_after: float = 30.0
    """Age at which a measurement is no longer acted on, s."""
    in_place_per_hour: float = math.inf
    """Changes within an hour that the model keeps serving through; what puts back is never kept back."""
    reloads_per_hour: float = math.inf
    """Changes within an hour for which the model is loaded again."""
    restarts_per_hour: float = math.inf
    """Changes within an hour for which the server is started again."""
    breaker: int = 3
    """Changes in a row that fail before no more are tried for a while."""
    breaker_pause: int = 5
    """Windows without a try then; twice as many after each further failure."""
    breaker_longest: int = 320
    """Most windows without a try."""
    blind: int = 3
    """Windows in a row with stale, missing or implausible metrics that freeze everything."""
    thaw: int = 2
    """Good windows after that before anything is changed."""

    def __post_init__(self) -> None:
        if not self.step >= 1:
            raise InvalidInput(
                "guard step", f"{self.step} grid steps cannot reach a neighbour", "use at least 1"
            )
        if not 0 < self.budget <= 1 or self.horizon < 1:
            raise InvalidInput(
                "guard budget", f"{self.budget} of {self.horizon} windows", "use a share in (0, 1]"
            )
        counts = (self.cooldown, self.rollback_cooldown, self.retry_after, self.patience, self.review - 1)
        hourly = (self.in_place_per_hour, self.reloads_per_hour, self.restarts_per_hour)
        brakes = (self.breaker, self.breaker_pause, self.breaker_longest, self.blind)
        if min(*counts, *hourly, self.thaw) < 0 or min(brakes) < 1 or not 0 <= self.gain < 1:
            raise InvalidInput("guard", f"negative or too large limit in {self}")


WATCHED = GuardLimits(budget=0.2, horizon=20)
"""For a short search on a server that nobody depends on: may risk more, to learn within tens of windows."""
