"""The clock of a live target: real time, in which a stop of its worker ends every wait."""

from __future__ import annotations

import threading
import time

__all__ = ["StoppableClock", "Stopped"]


class Stopped(Exception):
    """The worker is being stopped."""


class StoppableClock:
    """Real time; sleeping ends at once when the worker is stopped.

    Args:
        stop: Is set to stop the worker.
    """

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def now(self) -> float:
        """Return seconds on a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            Stopped: The event was set.
        """
        if self._stop.wait(max(seconds, 0.0)):
            raise Stopped("stopped")
