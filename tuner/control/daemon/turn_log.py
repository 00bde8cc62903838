"""Logs the turns of a target: each change with what came of it, and many disturbed windows in a row."""

from __future__ import annotations

import logging
from typing import Protocol

from tuner.control.decide.decision import Hold, Rollback
from tuner.control.drive.journal import WindowRecord
from tuner.control.sentence import log_sentence
from tuner.knobs import KnobSpace

__all__ = ["TurnLog"]

MANY_DISTURBED = 5
"""Disturbed windows in a row after which the log says so."""


class Noting(Protocol):
    """Logs a sentence about one target."""

    def __call__(self, sentence: str, *, note: bool = True) -> None:
        """Log it; ``note`` also stores it as an event."""


class TurnLog:
    """What the log says of the turns of one target. Where nothing changes, it says so at the level DEBUG.

    Args:
        name: The target's name.
        say: Logs what an operator should read.
    """

    def __init__(self, name: str, say: Noting) -> None:
        self._name = name
        self._say = say
        self._disturbed_windows = 0  # in a row
        self._advice = ""  # the last line about a change that was only advised

    def add(self, record: WindowRecord, space: KnobSpace) -> None:
        """Log what was decided and what came of it, and many disturbed windows in a row."""
        decision, m = record.decision, record.measurement
        self._disturbed_windows = self._disturbed_windows + 1 if m is not None and m.disturbed else 0
        if m is not None and self._disturbed_windows == MANY_DISTURBED:
            self._say(
                f"{MANY_DISTURBED} windows in a row were disturbed, the last by: {'; '.join(m.disturbed)}"
            )
        if isinstance(decision, Hold):
            self._advice = ""
            log_sentence(self._name, f"hold, {decision.reason}", logging.DEBUG)
            return
        verb = "roll back" if isinstance(decision, Rollback) else "apply"
        verb = f"would {verb}" if record.outcome == "recommended" else verb
        problem = f" ({record.error})" if record.error else ""
        came_of_it = f"{verb} {space.format(decision.configuration)}: {record.outcome}{problem}"
        if came_of_it == self._advice:  # the same advice as before is logged once
            log_sentence(self._name, f"{came_of_it}; {decision.reason}", logging.DEBUG)
            return
        self._advice = came_of_it if record.outcome in {"recommended", "postponed"} else ""
        self._say(f"{came_of_it}; {decision.reason}", note=False)
