"""What a server of several models can say of each of them, beside the totals that its backend counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["ServerState", "SessionTraffic", "Traffic", "TrafficSource"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionTraffic:
    """What came of the requests of a session in a time."""

    name: str
    rate: float
    """Requests/s that arrived."""
    in_time: float
    """Requests/s that were answered by their deadlines."""
    late: float
    """Requests/s that were answered later."""
    dropped: Mapping[str, float]
    """Requests/s that were refused, by the reason."""
    mean_batch: float | None
    """Mean size of the batches that were executed; None without any."""
    waiting: int
    """Items that wait now."""
    sizes: Mapping[int, int]
    """How many requests had each number of items."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerState:
    """One of the servers that execute the requests."""

    address: str
    up: bool
    reason: str
    """Why it is down; empty if it is up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """What happened between two readings."""

    ended: float
    """When the later one was, s on the server's clock."""
    seconds: float
    """Between them."""
    sessions: tuple[SessionTraffic, ...]
    servers: tuple[ServerState, ...]


@runtime_checkable
class TrafficSource(Protocol):
    """A backend that can say it."""

    def traffic(self) -> Traffic | None:
        """Return what happened since it was last asked, until the counters were last read.

        Who asks once a window gets times without gaps, however often the counters are read within a window.
        None if they were not read since.
        """
        ...
