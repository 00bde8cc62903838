"""Real time, on the clock that all processes of the machine share."""

from __future__ import annotations

import time

__all__ = ["WallClock"]


class WallClock:
    """The monotonic clock: seconds since some moment in the past, the same one for every process here."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let time pass; Ctrl-C interrupts it."""
        if seconds > 0:
            time.sleep(seconds)
