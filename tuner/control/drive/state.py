"""Where a run stands: what must survive a crash of the server or of the tuner."""

from __future__ import annotations

from typing import ClassVar

from tuner.files.stored import Stored

__all__ = ["RunState"]


class RunState(Stored):
    """The configurations of a target that matter for its next life, and the number of windows so far."""

    what: ClassVar[str] = "state file"

    version: int = 1
    target: str
    original: dict[str, float]
    """What the server ran when the tuner attached for the first time."""
    current: dict[str, float]
    last_good: dict[str, float] | None = None
    window: int = 0
