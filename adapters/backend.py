"""The contract of a serving backend, and the values that cross it.

A backend is one model on one server, reached through an adapter. An adapter translates between the server's
interfaces and this contract. It asks the server instead of remembering what the server knows, and raises only
the errors of :mod:`tuner.errors`. Each adapter is tested with the contract test of :mod:`tuner.testing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from tuner.adapters.metrics.gpu import GpuUse
from tuner.adapters.metrics.histogram import Histogram
from tuner.knobs import ApplyCost, Configuration, KnobSpace
from tuner.measurement import NOT_KNOWN, Measurement, Work
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
    lacks: tuple[str, ...] = ()
    """Statistics of the latency that are not among these quantiles, such as ``p95``; how to add them is in
    ``notes``."""
    quantile_memory: float = 0.0
    """How far back the server's quantiles look, s. For this long after a change they still include requests
    from before it. 0 if they are of exactly one window, as those from a histogram are."""
    processes: tuple[int, ...] = ()
    """Process ids of the server if it runs on this machine, else empty."""
    counts_by_process: bool = False
    """Whether the server counts from 0 again only in a new process: no reload resets its totals."""
    on_gpu: bool | None = None
    """Whether the model runs on GPUs; None if the server does not say."""
    notes: tuple[str, ...] = ()
    """Sentences for the operator: what is limited, and which flag of the server would change that."""
    without_knobs: tuple[str, ...] = ()
    """Sentences that say why the model has no knob unless the operator names one."""
    turns: tuple[str, ...] = ()
    """The models that its knobs turn, where these are others than ``model``: those of an ensemble."""


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
    """How long to wait before measuring, s: the old instances go on serving for a while."""
    affected: float | None = None
    """Requests that had to wait for the change; None if nobody counted them, or each replica did."""
    replicas: tuple[ApplyReport, ...] = ()
    """Of each replica, where several share the requests: those of one wait for its own change alone. Empty
    for a single server."""

    @classmethod
    def unchanged(cls, configuration: Configuration, *, seconds: float = 0.0) -> ApplyReport:
        """Return the report of a server that ran the configuration already."""
        return cls(
            configuration=configuration, changed=False, cost=ApplyCost.FREE, seconds=seconds, settle=0.0
        )

    @classmethod
    def together(
        cls, reports: Iterable[ApplyReport], configuration: Configuration, *, seconds: float
    ) -> ApplyReport:
        """Return the report of a change that was made in several parts.

        Args:
            reports: Of the parts.
            configuration: What all of them run now.
            seconds: How long all changes took.
        """
        parts = list(reports)
        return cls(
            configuration=configuration,
            changed=any(part.changed for part in parts),
            cost=max((part.cost for part in parts), default=ApplyCost.FREE),
            seconds=seconds,
            settle=max((part.settle for part in parts), default=0.0),
        )

    def noted(self, measurement: Measurement) -> Measurement:
        """Return the window that followed the change, with what the change cost its requests.

        The objective charges for that. If nobody counted the affected requests, they are estimated: all that
        came during a reload or a restart, at the window's rate, and none during a change in place.

        Of several replicas each has an equal share of the rate, and the change is said to have taken as long
        as that of its own replica did for an affected request, on average.
        """
        if not self.changed:
            return measurement
        parts = self.replicas or (self,)
        affected = [part._affected_at(measurement.arrival_rate / len(parts)) for part in parts]
        seconds, requests = self.seconds, sum(affected)
        if self.replicas and requests:
            waits = zip(self.replicas, affected, strict=True)
            seconds = sum(part.seconds * number for part, number in waits) / requests
        return replace(measurement, change_seconds=seconds, change_requests=requests)

    def _affected_at(self, rate: float) -> float:
        """Return how many requests had to wait; unless they were counted, by the rate at which they came."""
        if not self.changed:
            return 0.0
        estimate = rate * self.seconds if self.cost >= ApplyCost.RELOAD else 0.0
        return estimate if self.affected is None else self.affected


@dataclass(frozen=True, kw_only=True, slots=True)
class Counters(Work):
    """Totals since the adapter was opened. They never fall, not even over a reload or a restart."""

    time: float
    """When they were read, s on the monotonic clock (virtual in simulation)."""
    failures: int = 0
    """Requests refused or failed; 0 where nobody counts them."""
    beyond_servers: int = 0
    """Those of them that would have failed with any number of servers, as in a broken model or by a client's
    mistake; 0 where the server does not say why requests fail."""
    latency: float = NOT_KNOWN
    """Summed time from receipt to answer of the answered requests, s; NaN where nobody counts it."""
    pending: float | None = None
    """Requests waiting now; None if the server does not say."""
    quantiles: Mapping[float, float] = field(default_factory=dict)
    """The server's own latency quantiles, s, over its ``quantile_memory``; empty if not exported."""
    latencies: Histogram | None = None
    """Answered requests by latency, where the server exports a histogram; totals like the others."""
    restarts: int = 0
    """How often the server began to count at 0 again, so that totals had to be carried over."""
    gpus: tuple[GpuUse, ...] = ()
    """What the server itself reports of the GPUs that the model's instances are on, now; empty if nothing."""


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
            InvalidInput: A knob is unknown or a value unusable; nothing was changed.
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
        """Close all connections. Never changes the server. May be called twice."""
        ...
