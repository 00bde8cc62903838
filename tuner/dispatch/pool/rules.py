"""The rules by which a pool schedules, and its sessions' limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.scheduling.catalogue import distributes
from tuner.scheduling.cluster import Delays

__all__ = ["PoolSession", "Rules"]


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
        return distributes(self.policy)

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
