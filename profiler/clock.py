"""Real time, on the clock that all processes of the machine share."""

from __future__ import annotations

import time

__all__ = ["WallClock"]

LOOKS = 0.5
"""s between two looks for a signal while time passes: one that the kernel gives to another thread ends no
sleep."""


class WallClock:
    """The monotonic clock: seconds since some moment in the past, the same one for every process here."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let time pass; Ctrl-C interrupts it."""
        ends = self.now() + seconds
        while (left := ends - self.now()) > 0:
            time.sleep(min(left, LOOKS))
