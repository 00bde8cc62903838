"""Backends of several servers on one of which a configuration can be tried before the rest."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tuner.adapters.backend import Counters
from tuner.knobs import Configuration

__all__ = ["Canary", "CanaryTrial", "ServedRequests"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedRequests:
    """What some of the servers served while a configuration was tried."""

    requests: int
    failures: int
    latency: float
    """All of it together, s."""

    @property
    def mean(self) -> float:
        """Mean latency of a request, s; NaN if there was none."""
        return self.latency / self.requests if self.requests > 0 else math.nan

    @property
    def failed(self) -> float:
        """ServedRequests of the requests that failed."""
        total = self.requests + self.failures
        return self.failures / total if total > 0 else 0.0

    @classmethod
    def between(cls, before: Counters, after: Counters) -> ServedRequests:
        """Return what was served between two readings."""
        return cls(
            requests=after.requests - before.requests,
            failures=after.failures - before.failures,
            latency=after.latency - before.latency,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CanaryTrial:
    """One server with a new configuration beside the others with the old one."""

    server: str
    """The one that tried it."""
    tried: ServedRequests
    others: ServedRequests


@runtime_checkable
class Canary(Protocol):
    """A backend of several servers."""

    def try_one(self, configuration: Configuration, wait: Callable[[float], None]) -> CanaryTrial | None:
        """Change one server, let time pass, and tell how it served beside the others.

        It keeps the configuration; if anything goes wrong, it gets its own back.

        Args:
            configuration: What to try.
            wait: Lets time pass, longer by the seconds it is told: those that the server takes to settle.

        Returns:
            What was seen; None if there is only one server at present.

        Raises:
            Refused: It refused, or went away.
        """
        ...

    def take_back(self) -> None:
        """Give the server that tried a configuration its own back.

        Raises:
            AdapterError: It refused, or went away.
        """
        ...
