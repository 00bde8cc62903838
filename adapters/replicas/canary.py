"""A canary: one server of several, on which a configuration is tried before the others get it."""

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
    """What one or several servers served while a configuration was tried."""

    requests: int
    failures: int
    latency: float
    """Summed over the answered requests, s."""

    @property
    def mean(self) -> float:
        """Mean latency of a request, s; NaN if there was none."""
        return self.latency / self.requests if self.requests > 0 else math.nan

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
    """What was measured of one server with a new configuration and of the others with the old one."""

    server: str
    """The server with the new configuration."""
    tried: ServedRequests
    others: ServedRequests


@runtime_checkable
class Canary(Protocol):
    """A backend of several servers that can try a configuration on one of them."""

    def configurations(self) -> list[Configuration]:
        """Return what each server runs that answers.

        Raises:
            AdapterError: None answers.
        """
        ...

    def try_one(self, configuration: Configuration, wait: Callable[[float], None]) -> CanaryTrial | None:
        """Change one server, wait, and compare what it served with what the others served.

        The server keeps the configuration. If anything goes wrong, its own is put back. A server that does
        not answer may have it, now or later: then ``take_back`` and a change of all put that right.

        Args:
            configuration: What to try.
            wait: Lets a window pass. Its argument is added to the window: the time that the server takes to
                settle, s.

        Returns:
            What was measured; None if there is only one server at present.

        Raises:
            Refused: The server refused, went away with the configuration, or has lost it, such as by a
                restart; the others run their own.
            AdapterError: The server did not answer when it was changed: nobody knows what it runs.
        """
        ...

    def take_back(self) -> None:
        """Put back what the server ran that tried a configuration. May be called again.

        Raises:
            InvalidInput: What it ran cannot be set.
            AdapterError: It refused, or does not answer; it can be put back later.
        """
        ...
