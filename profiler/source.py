"""The sources of a profiler: clock, clients, host and indicator. Each has a live and a simulated form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tuner.measurement import NOT_KNOWN, Measurement
from tuner.profiler.gpu import GpuReading

__all__ = ["ClientSample", "Clients", "Clock", "Host", "HostReading", "Indicator"]


class Clock(Protocol):
    """A source of time: real, or virtual in simulation."""

    def now(self) -> float:
        """Return seconds on a clock that never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientSample:
    """The requests that the clients intended to send in an interval, and their latencies."""

    intended: np.ndarray
    """Intended send times, increasing.   # (n,) s on the profiler's clock"""
    latency: np.ndarray
    """From the intended send time to the answer; NaN without an answer.   # (n,) s"""
    failed: int
    """Requests that were refused, failed, or lost."""
    lateness: np.ndarray
    """Actual minus intended send time.   # (n,) s"""
    answered: np.ndarray | None = None
    """Latencies of the requests answered in the interval, whenever they were sent; None where these are not
    known.   # (m,) s"""


class Clients(Protocol):
    """A load generator whose requests are timed."""

    def sample(self, start: float, end: float) -> ClientSample:
        """Return the requests intended in ``[start, end)``; wait shortly for outstanding answers."""
        ...


class Indicator(Protocol):
    """Another source of latencies, such as the metrics of a gateway."""

    def applied(self, measurement: Measurement) -> Measurement:
        """Return the measurement of the window that has just ended, with the latencies of this source."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class HostReading:
    """Processor time used so far, and how much of the GPUs is in use."""

    time: float
    server: float = NOT_KNOWN
    """Core-seconds used by the server's processes since the first reading."""
    own: float = NOT_KNOWN
    """Core-seconds used by this process and its children."""
    total: float = NOT_KNOWN
    """Core-seconds used by all processes of the machine, and those that its hypervisor withheld."""
    cores: float = NOT_KNOWN
    """Cores of the machine."""
    steal: float = NOT_KNOWN
    """Core-seconds that the hypervisor withheld."""
    ran: float = NOT_KNOWN
    """Time that the server's threads ran, by the scheduler's own count, s."""
    waited: float = NOT_KNOWN
    """Time that they waited for a core, s."""
    pressure: float = NOT_KNOWN
    """Time in which at least one task of the server's control group waited for a core, s."""
    throttled: float = NOT_KNOWN
    """Time in which the group's quota was used up, s."""
    processes: frozenset[int] = frozenset()
    """Ids of the server's processes that run; empty where they cannot be seen."""
    gpu: GpuReading = field(default_factory=GpuReading)
    """What the driver says of the GPUs."""


class Host(Protocol):
    """The machine the server runs on."""

    @property
    def cores(self) -> float:
        """CPU cores of the machine that the server may use."""
        ...

    def read(self) -> HostReading:
        """Read processor times and GPU state."""
        ...
