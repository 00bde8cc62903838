"""The guard: what the control loop may do to a live server, whatever the agent would like.

========================  =====================================================================
state                     what may happen
========================  =====================================================================
STEADY                    hold, or apply one bounded step; after it -> PROBATION
PROBATION                 the window shows whether the change was good:
                          kept -> STEADY (after the cooldown); broken or failures -> roll back, and
                          again after the next window if that did not come about
COOLDOWN                  hold, for a number of windows after a change or a rollback -> STEADY
========================  =====================================================================

The SLO error budget is a share of the last windows. A window that breaks the SLO is charged to it if a
configuration was known to keep the SLO under that load: there was something to lose. So are the windows
that a change costs: nothing is measured in them, but the server's users are there. While the budget is
spent and the SLO kept, nothing is explored; only configurations known to be better may be applied. But what
breaks the SLO in more than every tenth window in the long run is not protected so: it spends the budget by
itself, and holding still would cost as much as the search for a better one.

Beside the states stand the brakes (:mod:`tuner.control.decide.brakes`): so many changes an hour, a circuit
breaker for changes that fail, and a freeze while the metrics are of no use.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from enum import Enum

from tuner.control.decide.brakes import Breaker, ChangeCount, Freeze
from tuner.errors import InvalidInput

__all__ = ["WATCHED", "ErrorBudget", "Guard", "GuardLimits", "GuardState", "Search"]


class GuardState(Enum):
    """Where the guard stands; see the table in the module docstring."""

    STEADY = "steady"
    PROBATION = "probation"
    COOLDOWN = "cooldown"


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


class ErrorBudget:
    """Counts the windows charged within the horizon."""

    def __init__(self, limits: GuardLimits) -> None:
        self._charged: deque[float] = deque(maxlen=limits.horizon)
        self._allowed = limits.budget * limits.horizon

    def record(self, charged: float) -> None:
        """Add one window, and how many windows are charged for it."""
        self._charged.append(charged)

    @property
    def spent(self) -> bool:
        """Whether no more windows may be put at risk."""
        return sum(self._charged) >= self._allowed * (1 - 1e-9)  # 0.07 * 100 is more than 7

    def __str__(self) -> str:
        return f"{sum(self._charged):.3g} of {self._allowed:g} windows of the SLO error budget used"


@dataclass(slots=True)
class _Searched:
    """The search under one load level."""

    best: float
    """Least cost of a tried configuration when it last became better; NaN if there was none."""
    since: int = 0
    """Windows since then."""
    over: int = 0
    """Windows since it ended."""
    again: int = 0
    """How often it was begun anew, and found nothing better."""


class Search:
    """Tells when the search under a load level is over: nothing better was found for a while.

    It begins anew if by then what runs does not keep the SLO, or not steadily; where nothing can, that must
    not cost a server more and more changes, so each time it waits twice as long, up to ``review`` windows.
    """

    def __init__(self, limits: GuardLimits) -> None:
        self._limits = limits
        self._levels: dict[int, _Searched] = {}

    def record(self, level: int, best: float, *, good: bool) -> None:
        """Add a window.

        Args:
            level: The load.
            best: Least cost known of a tried configuration; NaN if there is none.
            good: Whether any is known to keep the SLO, and what runs does so steadily.
        """
        if level not in self._levels:
            self._levels[level] = _Searched(best)
            return
        one = self._levels[level]
        one.since += 1
        if best < one.best * (1 - self._limits.gain):
            one.best, one.since, one.over, one.again = best, 0, 0, 0
        elif one.since > self._limits.patience:
            one.over += 1
            if not good and one.over > min(self._limits.patience * 2**one.again, self._limits.review):
                one.best, one.since, one.over, one.again = best, 0, 0, one.again + 1

    def over(self, level: int) -> bool:
        """Whether exploring is not worth disturbing the server in this window."""
        beyond = self._levels[level].since - self._limits.patience if level in self._levels else 0
        return beyond > 0 and beyond % self._limits.review != 0


class Guard:
    """Keeps the state of the table above; the loop asks it and tells it what happened."""

    def __init__(self, limits: GuardLimits) -> None:
        self.limits = limits
        self.budget = ErrorBudget(limits)
        self.search = Search(limits)
        self.changes = ChangeCount(limits)
        self.breaker = Breaker(limits)
        self.freeze = Freeze(limits)
        self.state = GuardState.STEADY
        self._holds = 0
        self._window = 0
        self._banned: dict[tuple[int, int], int] = {}

    def window(self, *, charged: float) -> None:
        """One more undisturbed window has ended; so many windows are charged to the error budget."""
        self._window += 1
        self.budget.record(charged)

    def changed(self) -> None:
        """A configuration was applied: the next window is its probation."""
        self.state = GuardState.PROBATION

    def passed(self) -> None:
        """The configuration on probation kept the SLO, or broke nothing that was whole."""
        self._cool(self.limits.cooldown)

    def overtaken(self) -> None:
        """What was on probation is no longer ours to judge: somebody else chose what runs now."""
        if self.state is GuardState.PROBATION:
            self.state = GuardState.STEADY

    def rolled_back(self, level: int, configuration: int) -> None:
        """The configuration on probation was bad under this load; do not come back to it soon."""
        self._banned[level, configuration] = self._window + self.limits.retry_after
        self._cool(self.limits.rollback_cooldown)

    def must_hold(self) -> bool:
        """Count down one window of the cooldown; True while it lasts."""
        if self.state is not GuardState.COOLDOWN:
            return False
        self._holds -= 1
        if self._holds < 0:
            self.state = GuardState.STEADY
        return self.state is GuardState.COOLDOWN

    def banned(self, level: int) -> list[int]:
        """Configurations not to be tried under this load for now."""
        return [c for (at, c), until in self._banned.items() if at == level and until > self._window]

    def _cool(self, windows: int) -> None:
        self._holds = windows
        self.state = GuardState.COOLDOWN if windows else GuardState.STEADY
