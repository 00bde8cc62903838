"""What the worker of a target does, and since when, for those who look at it from outside."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tuner.control.daemon.config import TargetConfig
from tuner.control.drive.windows import OVERDUE
from tuner.errors import AdapterError
from tuner.profiler.source import Clock

__all__ = ["OVERDUE_WINDOW", "AbsentTarget", "Phase"]

OVERDUE_WINDOW = "waiting: the server answers so slowly that its window is overdue"


class Phase:
    """What a worker does: ``starting``, ``running``, ``stopped``, or ``waiting: `` and for what.

    Life: the worker's thread writes it, others read it.

    Args:
        now: Seconds since 1970.
        clock: The time by which windows are overdue.
    """

    def __init__(self, now: Callable[[], float], clock: Clock) -> None:
        self._now = now
        self._clock = clock
        self._entered = ("starting", now())  # replaced as one: other threads read it
        self._due = math.inf  # when the window under way is overdue

    @property
    def words(self) -> str:
        """What the worker does."""
        words, _ = self._entered
        return OVERDUE_WINDOW if words == "running" and self._overdue > 0 else words

    @property
    def since(self) -> float:
        """Since when, s since 1970. The reason for which it waits may have changed meanwhile."""
        words, since = self._entered
        overdue = self._overdue
        return self._now() - overdue if words == "running" and overdue > 0 else since

    @property
    def _overdue(self) -> float:
        return self._clock.now() - self._due

    def enter(self, words: str) -> None:
        """Note what the worker does from now on."""
        before, since = self._entered
        goes_on = words.partition(":")[0] == before.partition(":")[0]
        self._entered = (words, since if goes_on else self._now())

    def window_begun(self, seconds: float) -> None:
        """Note that a window begins, which may take a number of seconds."""
        self._due = self._clock.now() + seconds + OVERDUE

    def window_ended(self, problem: AdapterError | None) -> None:
        """Note that a window has ended, and why it could not be measured if so.

        At once, because the driver may wait for minutes for a server that is away.
        """
        self._due = math.inf
        self.enter("running" if problem is None else f"waiting: {problem}")


@dataclass(frozen=True, kw_only=True, slots=True)
class AbsentTarget:
    """A target without a worker that keeps it, shown beside those that have one."""

    config: TargetConfig
    phase: str
    """``starting``, or ``waiting: `` and for what."""
    since: float
    """Since when, s since 1970."""
    learned: None = None
    """Nothing, as long as no worker measures: see :class:`~.worker.Worker`."""
    traffic: None = None
    advisor: None = None
