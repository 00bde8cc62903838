"""What a worker tells the daemon: a report of each turn for its frontend, and sentences for the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tuner.control.decide.decision import Apply
from tuner.control.decide.validation import unusable
from tuner.control.drive.journal import WindowRecord
from tuner.objective import Slo

if TYPE_CHECKING:
    from tuner.control.drive.driver import Driver
    from tuner.knobs import Configuration
    from tuner.planning.autoscale import ScalingAdvice

__all__ = ["Say", "TurnReports", "WorkerReport"]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerReport:
    """One turn of a worker, for the daemon's frontend."""

    record: WindowRecord
    kept: bool
    """Whether the window kept the SLO."""
    slo: Slo
    """The SLO that it was judged by."""
    unused: str
    """Why nothing is learned from the window; empty if something is, or if there is none."""
    first_after_change: bool
    """Whether the window is the first usable one after a change that was no rollback."""
    running: Configuration
    """What the server runs after the turn."""
    failed_changes: int = 0
    """Changes in a row that have failed."""
    foreign_changes: int = 0
    """How often somebody else has changed the server since the last report."""
    target: int | None = None
    """Its number in the store: where its name stands for another server, that is another one."""
    scaling: Mapping[str, ScalingAdvice] = field(default_factory=dict)
    """How many servers the target should have, by pool; empty where nobody can say."""


class TurnReports:
    """Makes the reports of a target's turns; remembers which change no window has shown yet."""

    def __init__(self) -> None:
        self._unshown: Configuration | None = None  # what the last change led to

    def of(
        self,
        record: WindowRecord,
        driver: Driver,
        scaling: Mapping[str, ScalingAdvice],
        *,
        target: int | None = None,
    ) -> WorkerReport:
        """Return the report of the newest turn.

        Args:
            record: The turn.
            driver: Took it.
            scaling: What is advised after it.
            target: Its number in the store.
        """
        m, objective = record.measurement, driver.loop.objective
        unused = "" if m is None else unusable(m, objective)
        usable = m is not None and not unused
        unseen, same = self._unshown, driver.loop.space.same
        shown = m is not None and usable and unseen is not None and same(m.configuration, unseen)
        if record.outcome == "applied":
            # What runs after a rollback is no news, and its cost is not to be compared with the expected one.
            self._unshown = record.wanted if isinstance(record.decision, Apply) else None
        elif usable:  # this window showed it, or somebody else has changed the server
            self._unshown = None
        return WorkerReport(
            record=record,
            kept=m is not None and objective.kept(m),
            slo=objective.slo,
            unused=unused,
            first_after_change=shown,
            running=driver.running,
            failed_changes=driver.loop.memory.failed_changes,
            foreign_changes=driver.reconciler.foreign.taken(),
            target=target,
            scaling=scaling,
        )


class Say(Protocol):
    """Receives the name of a target (empty for the daemon itself) and a sentence for the log."""

    def __call__(self, name: str, sentence: str, level: int = logging.INFO, /) -> None:
        """Log the sentence."""
