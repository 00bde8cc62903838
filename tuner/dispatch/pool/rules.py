"""What a pool schedules, by which rules, and who watches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tuner.dispatch.request import Status
from tuner.scheduling.catalogue import DISTRIBUTION_POLICIES
from tuner.scheduling.cluster import Delays

__all__ = ["Observer", "PoolSession", "Rules"]


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

    def returned(self, sessions: Sequence[str]) -> None:
        """Sessions have a server again, after they had none."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How a pool schedules."""

    policy: str = "symphony"
    options: Mapping[str, Any] = field(default_factory=dict)
    """By policy; those that are not in it have their defaults."""
    delays: Delays | None = None
    """Of the network, as the policy assumes them; measured if None."""
    grants: bool = False
    """Whether frontends send their requests themselves, when and where they are granted."""

    @property
    def distributes(self) -> bool:
        """Whether the policy sends each request alone, by its size."""
        return self.policy in DISTRIBUTION_POLICIES

    @property
    def chosen(self) -> Any:
        """The options of the policy; its defaults if None."""
        return self.options.get(self.policy)


@dataclass(frozen=True, kw_only=True)
class PoolSession:
    """A session, as its pool needs it."""

    name: str
    slo: float
    """s"""
    queue: int
    """Items that may wait."""
    max_batch: int | None = None
    prior: tuple[float, float] | None = None
    """alpha and beta of the profile until it is learned, s."""
