"""What hears of everything that happens in a pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tuner.dispatch.request import Status

__all__ = ["Observer"]


class Observer(Protocol):
    """Hears of everything that happens; it must not fail."""

    def arrived(self, session: str) -> None:
        """A request arrived."""

    def taken(self, session: str, items: int) -> None:
        """A request of this size waits for a batch."""

    def ended(self, session: str, status: Status | None, seconds: float, late: bool) -> None:
        """A request was answered (no status), in time or late, or refused, some time after its arrival."""

    def executed(self, session: str, server: str, requests: int, items: int, seconds: float) -> None:
        """A batch of so many requests, with so many items in all, was executed."""

    def switched(self, server: str, up: bool) -> None:
        """A server came or went."""

    def gone(self, server: str) -> None:
        """A server, which no session has any more, is forgotten."""

    def session_gone(self, session: str) -> None:
        """A session, which the configuration no longer has, is forgotten."""

    def returned(self, sessions: Sequence[str]) -> None:
        """Sessions have a server again, after they had none."""
