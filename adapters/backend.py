"""The contract of a serving backend, and the values that cross it.

A backend is one model on one server, reached through an adapter. The adapter translates, remembers
nothing that the server knows, and raises only the errors of :mod:`tuner.errors`. The contract test that
ships in :mod:`tuner.testing` holds every adapter to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from tuner.adapters.metrics.histogram import Histogram
from tuner.knobs import ApplyCost, Configuration, KnobSpace
from tuner.measurement import Measurement
from tuner.profile import BatchingProfile

__all__ = ["ApplyReport", "Backend", "Counters", "Description"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """Who the backend is and what it can do."""

    target: str
    """The URL it was reached by."""
    server: str
    """The server's own name, such as ``triton``."""
    version: str
    model: str
    writable: bool
    """Whether configurations can be applied; the reason why not is in ``notes``."""
    quantiles: bool
    """Whether the server exports latency quantiles; how to turn them on is in ``notes``."""
    quantile_memory: float = 0.0
    """How far back the server's quantiles look, s; after a change they are mixed for so long. 0 if they are
    told for exactly one window, as from a histogram."""
    processes: tuple[int, ...] = ()
    """Process ids of the server if it runs on this machine, else empty."""
    notes: tuple[str, ...] = ()
    """Sentences for the operator: what is limited, and which flag would change that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ApplyReport:
    """What applying a configuration did."""

    configuration: Configuration
    """What the server runs now, read back from it."""
    changed: bool
    """False if it ran this already and nothing was done."""
    cost: ApplyCost
    seconds: float
    """How long the change took."""
    settle: float
    """How long to wait before measuring, s: the old instances live on for a while."""
    affected: float | None = None
    """Requests that had to wait for the change; None if nobody counted them."""

    @classmethod
    def unchanged(cls, configuration: Configuration, *, seconds: float = 0.0) -> ApplyReport:
        """Return the report of a server that ran the configuration already."""
        return cls(
            configuration=configuration, changed=False, cost=ApplyCost.FREE, seconds=seconds, settle=0.0
        )

    def noted(self, measurement: Measurement) -> Measurement:
        """Return the window that followed with what the change before it took, for the objective.

        If nobody counted them, all requests that came during a reload or a restart count as affected, at the
        window's rate; a change in place affects none. Adapters whose server keeps serving say so.
        """
        if not self.changed:
            return measurement
        affected = self.affected
        if affected is None:
            affected = measurement.arrival_rate * self.seconds if self.cost >= ApplyCost.RELOAD else 0.0
        return replace(measurement, change_seconds=self.seconds, change_requests=affected)


@dataclass(frozen=True, kw_only=True, slots=True)
class Counters:
    """Totals since the adapter was opened. They never fall, not even over a reload or a restart."""

    time: float
    """When they were read, s on the monotonic clock (virtual in simulation)."""
    requests: int
    """Requests answered."""
    failures: int
    """Requests refused or failed."""
    latency: float
    """Summed time from receipt to answer of the answered requests, s."""
    queue: float
    """Summed waiting time of them, s."""
    compute: float
    """Summed time in execution of them (each request counts its whole batch), s."""
    inferences: int
    """Rows inferred: above ``requests`` where requests carry several rows."""
    batch_counts: np.ndarray
    """Executions per batch size.   # (B+1,) int64"""
    batch_seconds: np.ndarray
    """Time in them.   # (B+1,) s"""
    pending: float | None = None
    """Requests waiting now, where the server tells."""
    quantiles: Mapping[float, float] = field(default_factory=dict)
    """The server's own latency quantiles, s, over its ``quantile_memory``; empty if not exported."""
    latencies: Histogram | None = None
    """Answered requests by latency, where the server counts them so; totals like the others."""
    restarts: int = 0
    """How often totals had to be carried over because the server began at 0 again."""


class Backend(Protocol):
    """One model on one server."""

    @property
    def space(self) -> KnobSpace:
        """The knobs that can be turned and their grids."""
        ...

    def describe(self) -> Description:
        """Return who this is and what it can do.

        Raises:
            AdapterError: The server cannot be asked.
        """
        ...

    def current(self) -> Configuration:
        """Read from the server what it runs; the values need not be on the grid.

        Raises:
            AdapterError: The server cannot be asked.
        """
        ...

    def apply(self, configuration: Configuration) -> ApplyReport:
        """Make the server run a configuration: all of it or nothing, verified by reading back.

        Raises:
            InvalidInput: A knob is unknown or a value unusable; the server was not asked.
            ReadOnly: The server takes no changes.
            Refused: The server refused; the old configuration still serves.
            AdapterError: It could not be reached or did not finish in time.
        """
        ...

    def counters(self) -> Counters:
        """Read the totals.

        Raises:
            AdapterError: The server cannot be asked.
        """
        ...

    def profile(self) -> BatchingProfile | None:
        """Return l(b) over everything seen since opening, or None before the first execution."""
        ...

    def close(self) -> None:
        """Let go of connections. Never changes the server. May be called twice."""
        ...
