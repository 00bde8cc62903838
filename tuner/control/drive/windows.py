"""Measures the windows of a driver, each after the pause that a change or an outage asks for."""

from __future__ import annotations

import math

from tuner.adapters.backend import ApplyReport
from tuner.control.decide.loop import ControlLoop
from tuner.control.drive.watched import Watched, longest
from tuner.measurement import Measurement

__all__ = ["OVERDUE", "Windows"]

OVERDUE = 3.0
"""A window is overdue this long after it should have ended, s, with the longest wait for a backlog before it;
beginning it again gives it no more time."""
AFTER_OUTAGE = 1.0
"""Least pause, s, between the return of a server and the next window: at first it serves slowly."""


class Windows:
    """The windows of a server, one after the other.

    Life: `measure` each of them. Call `changed` after each change, and after each outage `went_on`, then
    `rest` before the next window.

    Args:
        watched: The server and how it is measured.
        loop: Says how long a window takes, and how many requests are enough.
        length: Usual length of a window, s.
    """

    def __init__(self, watched: Watched, loop: ControlLoop, length: float) -> None:
        self._watched = watched
        self._loop = loop
        self._length = length
        self._settle = 0.0  # pause before the next window, s
        self._due = math.inf  # when the next window is overdue; infinite if none was begun
        self._change_before: ApplyReport | None = None  # the change that the next window follows

    def measure(self) -> Measurement:
        """Measure a window, and add to it what the change before it cost its requests.

        Raises:
            AdapterError: The server, or the source of its metrics, did not answer.
        """
        seconds = self._loop.window(self._length)
        if math.isinf(self._due):
            self._due = self._watched.clock.now() + longest(seconds, self._settle) + OVERDUE
        enough = self._loop.enough(self._length)
        measurement = self._watched.profiler.measure(seconds, settle=self._settle, enough=enough)
        if self._change_before is not None:
            measurement = self._change_before.noted(measurement)
        self._due, self._settle, self._change_before = math.inf, 0.0, None
        return measurement

    def changed(self, report: ApplyReport) -> None:
        """Note a change of the server: the next window begins when it has settled."""
        self._due = math.inf
        self._settle = report.settle if report.changed else 0.0
        self._change_before = report

    def went_on(self, begun: float, waited: float, *, metrics_only: bool) -> tuple[bool, float]:
        """Note that the server answers again in the middle of a window, which begins anew.

        Args:
            begun: When it was first waited for, s.
            waited: How long, s.
            metrics_only: Whether only its metrics were away, which may be so for days.

        Returns:
            Whether the window was overdue already, and the least pause before it begins anew, s.
        """
        rest = AFTER_OUTAGE
        if metrics_only:
            left = self._due - self._watched.clock.now()
            rest = max(min(self._length, left if left > 0 else math.inf), rest)
        overdue, self._due = begun > self._due, self._due + waited  # an outage makes no window overdue
        return overdue, rest

    def rest(self, seconds: float) -> None:
        """Wait at least so many seconds before the next window."""
        self._settle = max(self._settle, seconds)

    def let_pass(self, settle: float) -> None:
        """Let the time of one window pass, and some seconds before it."""
        self._watched.clock.sleep(settle + self._length)
