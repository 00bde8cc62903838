"""The time of a scheduler, and the timer that wakes it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

__all__ = ["SchedulerClock"]

EARLY = 1e-6
"""s by which the event loop may call a timer too early: the resolution of its clock, and rounding."""


class SchedulerClock:
    """Counts the seconds since a scheduler began, and wakes it.

    All times of its methods are the scheduler's, unless they say otherwise.

    Args:
        wake: Wakes the scheduler, with its time.
        late: Hears by how many s a timer was late.
    """

    def __init__(self, wake: Callable[[float], None], late: Callable[[float], None]) -> None:
        self.origin = 0.0
        """When the scheduler began, on the loop's clock, s."""
        self._wake = wake
        self._late = late
        self._loop = asyncio.get_running_loop()
        self._latest = 0.0
        self._wanted = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._was_ahead = False
        """Whether the timer was set before its time: only then it tells how late timers are."""

    def begin(self, origin: float) -> None:
        """Count from a moment on the loop's clock, s."""
        self.origin, self._latest = origin, 0.0

    def now(self) -> float:
        """Return the time, which never goes back."""
        self._latest = max(self._latest, self._loop.time() - self.origin)
        return self._latest

    def wake_at(self, wanted: float) -> None:
        """Wake the scheduler at a time and no other; never, if it is infinite."""
        self._wanted, at = wanted, self.origin + wanted
        if self._timer is not None:
            if self._timer.when() == at:  # as after most arrivals; setting it costs a few us
                return
            self._timer.cancel()
            self._timer = None
        if at < math.inf:
            self._timer = self._loop.call_at(at, self._fire)
            self._was_ahead = at > self._loop.time()

    def _fire(self) -> None:
        self._timer = None
        now = self.now()
        if self._wanted > now + EARLY:  # too early: time must not jump ahead to what it wants
            self.wake_at(self._wanted)
            return
        if self._was_ahead:
            self._late(now - self._wanted)
        self._latest = max(now, self._wanted)
        self._wake(self._latest)
