"""Operators' orders to a target: they come before everything that the control loop would decide."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.knobs import Configuration

__all__ = ["Orders"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Orders:
    """The orders in force; by default there are none."""

    paused: str = ""
    """Who has paused the target, and why; empty if nobody has."""
    pinned: Configuration | None = None
    """The configuration that the server must run until it is unpinned."""
    rollback: Configuration | None = None
    """The configuration to return to, once."""

    @property
    def standing(self) -> bool:
        """Whether the server is paused or pinned."""
        return bool(self.paused) or self.pinned is not None
