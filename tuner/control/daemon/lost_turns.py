"""Turns that a target loses because the store cannot be written: an error once, then the end of it."""

from __future__ import annotations

import logging
from typing import Protocol

__all__ = ["LostTurns"]


class Say(Protocol):
    """Logs a sentence; ``note`` also stores it as an event."""

    def __call__(self, sentence: str, *, note: bool = True, level: int = logging.INFO) -> None: ...


class LostTurns:
    """What is said of turns that could not be stored; some have measured a window, others end before.

    A full disk may stay so for hours, and the log may be on it: the same problem is an error in the first
    turn, and then only what ``--verbose`` shows.

    Args:
        say: Logs a sentence.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._count = 0
        self._problem = ""

    def add(self, problem: str) -> None:
        """Say that a turn is lost, and why."""
        level = logging.DEBUG if problem == self._problem else logging.ERROR
        sentence = f"this turn is lost, and nothing is changed until that works: {problem}"
        self._count, self._problem = self._count + 1, problem
        self._say(sentence, note=False, level=level)

    def end(self) -> None:
        """Say, once, that turns are stored again; nothing if none was lost."""
        if self._count:
            lost = "1 turn was lost" if self._count == 1 else f"{self._count} turns were lost"
            self._count, self._problem = 0, ""
            self._say(f"the store can be written again; {lost}")
