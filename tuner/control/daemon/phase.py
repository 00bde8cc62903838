"""What the worker of a target does, and since when, for those who look at it from outside."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tuner.control.daemon.config import TargetConfig
from tuner.control.drive.windows import OVERDUE
from tuner.errors import AdapterError
from tuner.profiler.source import Clock

__all__ = ["NOT_STORED", "OVERDUE_WINDOW", "AbsentTarget", "Phase"]

OVERDUE_WINDOW = "waiting: the server answers so slowly that its window is overdue"
NOT_STORED = (
    "waiting: what is measured cannot be stored, and nothing is changed until it can; "
    "make room for the file, or make it writable"
)
"""Begins what is said while turns are lost; the store's own words follow."""


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
        self._lost: tuple[str, float] | None = None  # likewise, while turns cannot be stored
        self._due = math.inf  # when the window under way is overdue

    @property
    def words(self) -> str:
        """What the worker does."""
        return self._shown[0]

    @property
    def since(self) -> float:
        """Since when, s since 1970. The reason for which it waits may have changed meanwhile."""
        return self._shown[1]

    @property
    def _shown(self) -> tuple[str, float]:
        entered, lost = self._entered, self._lost
        if entered[0] != "running":
            return entered
        if lost is not None:
            return lost
        overdue = self._clock.now() - self._due
        return (OVERDUE_WINDOW, self._now() - overdue) if overdue > 0 else entered

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

    def turn_lost(self, problem: str) -> None:
        """Note that a turn could not be stored, and why."""
        since = self._now() if self._lost is None else self._lost[1]
        self._lost = (f"{NOT_STORED}: {problem}", since)

    def turn_stored(self) -> None:
        """Note that a turn was stored."""
        self._lost = None


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
