"""The brakes: what stops changes of a server whatever the agent would like and the SLO asks for.

Three of them, each counting what the control loop tells it. They know no clock; times come in.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tuner.knobs import ApplyCost

if TYPE_CHECKING:
    from tuner.control.decide.guard import GuardLimits

__all__ = ["HOUR", "Breaker", "ChangeCount", "Freeze"]

HOUR = 3600.0
"""s."""
WORDS = {ApplyCost.IN_PLACE: "changes in place", ApplyCost.RELOAD: "reloads", ApplyCost.RESTART: "restarts"}


class ChangeCount:
    """Counts the changes of the last hour by what they cost the server.

    Args:
        limits: How many of each there may be.
    """

    def __init__(self, limits: GuardLimits) -> None:
        self._most = {
            ApplyCost.IN_PLACE: limits.in_place_per_hour,
            ApplyCost.RELOAD: limits.reloads_per_hour,
            ApplyCost.RESTART: limits.restarts_per_hour,
        }
        self._times: dict[ApplyCost, deque[float]] = {cost: deque() for cost in self._most}

    def record(self, now: float, cost: ApplyCost) -> None:
        """Count a change that was made at a time, s; times do not go back."""
        if cost in self._times:
            self._times[cost].append(now)

    def spent(self, now: float) -> dict[ApplyCost, str]:
        """Return what may not be done again within this hour, and say so in words."""
        told = {}
        for cost, times in self._times.items():
            while times and times[0] <= now - HOUR:
                times.popleft()
            if len(times) >= self._most[cost]:
                told[cost] = f"the {self._most[cost]:g} {WORDS[cost]} of this hour are used up"
        return told


class Breaker:
    """The circuit breaker: opens when changes fail one after the other, and lets one try through later.

    Each try that fails doubles the pause, each change that comes about closes it.

    Args:
        limits: How many failures open it, and for how many windows at first and at most.
    """

    def __init__(self, limits: GuardLimits) -> None:
        self._limits = limits
        self.failures = 0
        """In a row."""
        self.left = 0
        """Windows until the next try."""

    def failed(self) -> None:
        """A change was refused, or broke off."""
        self.failures += 1
        beyond = self.failures - self._limits.breaker
        if beyond >= 0:
            self.left = min(self._limits.breaker_pause * 2**beyond, self._limits.breaker_longest)

    def succeeded(self) -> None:
        """A change came about."""
        self.failures = self.left = 0

    def window(self) -> bool:
        """Count down one window; True while it is open."""
        opened = self.left > 0
        self.left = max(self.left - 1, 0)
        return opened

    def __str__(self) -> str:
        return f"{self.failures} changes in a row failed; the next try is {self.left + 1} windows away"


class Freeze:
    """Nothing is changed after several windows without usable metrics, until they are good again.

    Args:
        limits: How many windows freeze it, and how many good ones thaw it.
    """

    def __init__(self, limits: GuardLimits) -> None:
        self._limits = limits
        self.blind = 0
        """Windows without usable metrics in a row."""
        self.frozen = False
        self._good = 0

    def unusable(self) -> bool:
        """One more window without usable metrics; True once there were enough to freeze everything."""
        self.blind += 1
        self._good = 0
        self.frozen |= self.blind >= self._limits.blind
        return self.frozen

    def usable(self) -> bool:
        """A window with metrics that make sense; True while everything stays frozen all the same."""
        self.blind = 0
        self._good += 1
        if self._good > self._limits.thaw:
            self.frozen = False
        return self.frozen

    def __str__(self) -> str:
        return f"frozen until the metrics were good for {self._limits.thaw} windows (now {self._good})"
