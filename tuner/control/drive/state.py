"""The state file of a run: what must survive a crash of the server or of the tuner."""

from __future__ import annotations

from typing import ClassVar

from tuner.stored import Stored

__all__ = ["RunState"]


class RunState(Stored):
    """The last good configuration of a target, and what was found when the tuner attached."""

    what: ClassVar[str] = "state file"

    version: int = 1
    target: str
    original: dict[str, float]
    """What the server ran before the tuner touched it."""
    current: dict[str, float]
    last_good: dict[str, float] | None = None
    window: int = 0
