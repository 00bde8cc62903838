"""What a worker tells the daemon: a report of each turn for its frontend, and sentences for the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tuner.control.drive.journal import WindowRecord
from tuner.objective import Slo

if TYPE_CHECKING:
    from tuner.knobs import Configuration
    from tuner.planning.autoscale import ScalingAdvice

__all__ = ["Say", "WorkerReport"]


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
    scaling: Mapping[str, ScalingAdvice] = field(default_factory=dict)
    """How many servers the target should have, by pool; empty where nobody can say."""


class Say(Protocol):
    """Receives the name of a target (empty for the daemon itself) and a sentence for the log."""

    def __call__(self, name: str, sentence: str, level: int = logging.INFO, /) -> None:
        """Log the sentence."""
