"""What a window showed, and the schema of it: the one place where measured quantities are declared.

A window is one interval in which a backend is watched; a measurement is what it showed. Each measured
quantity is a field of :class:`Measurement` whose annotation holds a :class:`Quantity`. Everything that keeps
or shows windows goes through :data:`QUANTITIES`: the daemon's store, its history, API and Prometheus export,
reports and the laboratory. To add a quantity, declare its field here and compute it: in
:meth:`Work.measurement` if it follows from what every server counts, else in :mod:`tuner.profiler.window`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from typing import Annotated, Any, get_args, get_type_hints

import numpy as np

from tuner.duration import format_latency, is_cut
from tuner.knobs import Configuration
from tuner.profile import BatchingProfile, fit_profile

__all__ = [
    "NOT_KNOWN",
    "QUANTILES",
    "QUANTITIES",
    "STATISTICS",
    "UNANSWERED",
    "WITHOUT_TRAFFIC",
    "Measurement",
    "Quantity",
    "Work",
    "known",
    "latencies",
    "median_known",
]

NOT_KNOWN = math.nan
"""Stands for a quantity that nobody measured; it is never 0."""
NEARLY_ONE = 1.1
"""Up to so many rows of a request are taken for one: some requests are executed in a window, but answered
after it or too late."""
UNANSWERED = "no request was answered"
"""Why a window in which none was must not be learned from."""
WITHOUT_TRAFFIC = (
    "come back when the model has traffic, or give --rate 20 to send some, "
    "unless the model is decoupled or stateful"
)
"""What to do about a model that nobody sends requests to."""
ENDINGS = {"s": "_seconds", "cores": "_cores", "bytes": "_bytes", "share": "_ratio", "W": "_watts"}
"""How the name of a Prometheus metric ends, by the unit."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """What everybody who keeps or shows windows needs to know about one measured quantity.

    Names that are left empty are made from the field's.
    """

    meaning: str
    """A phrase for people, without the unit."""
    unit: str = ""
    """``s``, ``requests``, ``requests/s``, ``cores``, ``bytes``, ``W`` or ``share`` (0 to 1);
    empty for a number."""
    _: KW_ONLY
    statistic: str = ""
    """``mean``, ``p50``, ... of the latency; empty for every other quantity."""
    field: str = ""
    """The field of :class:`Measurement`."""
    kind: type[int] | type[float] = float
    """``int`` for what is counted, which is always known; else ``float``."""
    name: str = ""
    """What it is called in the store, the history, the API and the laboratory."""
    metric: str = ""
    """Its Prometheus metric without ``servetune_``; statistics of the latency share one."""
    report: str = ""
    """What it is called in ``report.json``, where durations are in ms."""

    def __str__(self) -> str:
        return f"{self.meaning}, {self.unit}" if self.unit else self.meaning

    @property
    def counted(self) -> bool:
        """Whether it is a number of events, which can be added up over windows."""
        return self.kind is int

    def declared(self, name: str, kind: type[int] | type[float]) -> Quantity:
        """Return the quantity with the names that follow from its field, as far as they are not given."""
        known = replace(self, field=name, kind=kind, name=self.name or self.statistic or name)
        metric = self.metric or ("latency" if self.statistic else name.removesuffix("_mean"))
        stem = known.name.removesuffix("_mean")
        return replace(
            known,
            metric=metric + ENDINGS.get(self.unit, ""),
            report=self.report or (f"{stem}_ms" if self.unit == "s" else known.name),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:  # noqa: PLW1641 - a mapping among its fields has no hash
    """One window: what load came, how it was served, and what it cost.

    Latencies are seconds per request, rates per second, CPU in cores. Quantities that could not be
    measured are NaN. A measurement with a reason in ``disturbed`` must not be learned from.
    """

    start: float
    """When the window began, s on the clock of the profiler or the simulator."""
    end: float
    """When it ended, s."""
    configuration: Configuration
    """What the server ran during the window."""
    requests: Annotated[int, Quantity("Requests answered", "requests", metric="answered_requests")]
    failures: Annotated[int, Quantity("Requests that failed", "requests", metric="failed_requests")] = 0
    """Refused, failed or lost."""
    beyond_servers: int = 0
    """Those of them that would have failed with any number of servers, as far as the server says why."""
    arrival_rate: Annotated[
        float, Quantity("Load", "requests/s", name="rate", metric="request_rate", report="load")
    ]
    burstiness: Annotated[float, Quantity("Index of dispersion of arrival counts")] = NOT_KNOWN
    """1 for Poisson, 0 for constant gaps, more for bursts. Where no clients time each request it looks back
    to earlier windows, too, and is unknown in the first."""
    latency_mean: Annotated[float, Quantity("Mean latency", "s", statistic="mean")] = NOT_KNOWN
    latency_p50: Annotated[float, Quantity("Median of the latency", "s", statistic="p50")] = NOT_KNOWN
    latency_p95: Annotated[float, Quantity("95 % quantile of the latency", "s", statistic="p95")] = NOT_KNOWN
    latency_p99: Annotated[float, Quantity("99 % quantile of the latency", "s", statistic="p99")] = NOT_KNOWN
    cut_off: Annotated[float, Quantity("Latency that unanswered requests count with", "s")] = NOT_KNOWN
    """Requests without an answer at the window's end count as if they had come at its beginning: with the
    longest latency that it can show. A statistic that reaches this was not less: see :meth:`cut`. Not known
    where every request was answered, or where nobody times them one by one."""
    timed: float = math.inf
    """Requests of our own, which alone were timed, beside those of others. Infinite where the latencies are
    those of all."""
    quantiles_from: str = "none"
    """Who measured the quantiles: ``client``, ``server``, ``indicator`` or ``none``."""
    quantiles_mixed: bool = False
    """Whether the server's quantiles still look back to another configuration, a disturbance or an overload;
    the mean never does."""
    queue_mean: Annotated[float, Quantity("Mean time a request waited inside the server", "s")] = NOT_KNOWN
    compute_mean: Annotated[float, Quantity("Mean time a request spent in execution", "s")] = NOT_KNOWN
    """Input, inference and output."""
    network_mean: Annotated[float, Quantity("Mean time a request spent outside the server", "s")] = NOT_KNOWN
    """The clients' mean latency less the server's, of the requests answered in the window: the network, and
    the clients themselves. Known where our clients are the only ones and had every answer."""
    batch_mean: Annotated[float, Quantity("Mean batch size", metric="batch_size")] = NOT_KNOWN
    """Rows per execution: a request of several rows counts as often in a batch."""
    request_rows: Annotated[float, Quantity("Mean rows of a request")] = NOT_KNOWN
    """1 where every request is for one inference. Less where a cache answered some."""
    busy_instances: Annotated[float, Quantity("Mean number of instances that execute at a time")] = NOT_KNOWN
    """If it is near the number of instances, the server is saturated."""
    batches: Mapping[int, int] = field(default_factory=dict)
    """Executions per batch size in rows."""
    profile: BatchingProfile | None = None
    """l(b) fitted to this window alone."""
    cpu: Annotated[float, Quantity("Cores used by the server", "cores")] = NOT_KNOWN
    foreign_cpu: Annotated[float, Quantity("Cores used by foreign processes", "cores")] = NOT_KNOWN
    """Those of processes that are neither the server nor ours, and what a hypervisor withheld."""
    steal: Annotated[float, Quantity("Cores that the hypervisor withheld", "cores")] = NOT_KNOWN
    foreign_share: Annotated[
        float, Quantity("Share of the machine's capacity that foreign processes used", "share")
    ] = NOT_KNOWN
    """Of its cores and of its GPUs, whether or not the server missed them. It is part of the load level."""
    run_delay: Annotated[
        float, Quantity("Share of the time the server wanted a core that it waited for one", "share")
    ] = NOT_KNOWN
    """Waiting over running and waiting, summed over its threads. Over the window's length it would grow with
    the load; this way 1 / (1 - share) is the factor by which its work takes longer."""
    contention: Annotated[
        float, Quantity("Share of the time the server wanted to work that foreign processes took", "share")
    ] = NOT_KNOWN
    """What others have of the run delay, with steal and with what foreign processes use of the GPUs."""
    cpu_pressure: Annotated[
        float, Quantity("Share of time in which a task of the server's group waited for a core", "share")
    ] = NOT_KNOWN
    """Pressure stall information of its control group, or of the whole machine if it has none."""
    throttled: Annotated[
        float, Quantity("Share of time in which the quota of the server's group was used up", "share")
    ] = NOT_KNOWN
    gpu: Annotated[float, Quantity("Share of the GPUs' time in use", "share")] = NOT_KNOWN
    """Of those that the server is on. Without what foreign processes used, where the driver of this machine
    tells processes apart; by the server's own metrics where it is another machine."""
    foreign_gpu: Annotated[float, Quantity("Share of the GPUs' time used by foreign processes", "share")] = (
        NOT_KNOWN
    )
    gpu_memory: Annotated[float, Quantity("GPU memory in use", "bytes")] = NOT_KNOWN
    gpu_power: Annotated[float, Quantity("Power of the GPUs", "W")] = NOT_KNOWN
    lateness_p99: Annotated[float, Quantity("Lateness of our load", "s", metric="load_lateness")] = NOT_KNOWN
    """How late our own load generator sent, 99 % quantile; large values blame the client."""
    waiting: Annotated[float, Quantity("Waiting for the change before, over all requests", "s")] = 0.0
    """How much longer than usual the requests took that came since the window before: that is what a change
    costs those who use the server. It is 0 if the old instances serve well until the new ones take over."""
    waited: float = math.inf
    """Requests that came since the window before: no more of them can have waited. Infinite where nobody
    counted them."""
    change_seconds: float = 0.0
    """How long the change of the configuration before this window took, s; 0 without one. Of replicas that
    were changed one after the other: how long that of the one did that a request came to, on average."""
    change_requests: float = 0.0
    """Requests that came while it was made and may have waited for it."""
    restarted: bool = False
    """Whether the server's process surely began anew in it, so that what it ran may be lost."""
    disturbed: tuple[str, ...] = ()
    """Why the window must not be learned from; empty if it may."""

    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal; a quantity that is NaN in both counts as equal."""
        if not isinstance(other, Measurement):
            return NotImplemented
        return all(_equal(getattr(self, one.name), getattr(other, one.name)) for one in fields(self))

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.end - self.start

    @property
    def rows(self) -> float:
        """Rows of a request for calculations: 1 where they are nearly that, or nobody counts them."""
        return self.request_rows if self.request_rows > NEARLY_ONE else 1.0  # NaN is not above

    @property
    def asked(self) -> int:
        """Requests that were answered or failed."""
        return self.requests + self.failures

    def delayed(self, latency: float) -> float:
        """Most requests that the change before can have delayed for as long as ``latency``, s, or longer."""
        return min(self.waiting / latency, self.waited)

    @property
    def failure_share(self) -> float:
        """Share of these that failed; 0 if there were none."""
        return self.failures / self.asked if self.asked else 0.0

    def latency(self, statistic: str) -> float:
        """Return one statistic of the latency by name, see :data:`STATISTICS`."""
        return float(getattr(self, f"latency_{statistic}"))

    def cut(self, statistic: str) -> bool:
        """Whether the window's end cut a statistic of the latency off: it is a lower bound then."""
        return is_cut(self.latency(statistic), self.cut_off)

    def text(self, statistic: str) -> str:
        """Write a statistic of the latency for people."""
        return format_latency(self.latency(statistic), self.cut_off)

    def value(self, quantity: Quantity) -> float:
        """Return what was measured of a quantity, NaN where it is not known."""
        return quantity.kind(getattr(self, quantity.field))

    def figures(self) -> dict[str, float]:
        """Return every quantity by its name, NaN where it is not known."""
        return {quantity.name: self.value(quantity) for quantity in QUANTITIES}

    def to_json(self) -> dict[str, object]:
        """Return plain values for files; NaN becomes None."""
        values = asdict(self)
        values["configuration"] = dict(self.configuration)
        values["batches"] = {str(size): count for size, count in self.batches.items()}
        return {name: _plain(value) for name, value in values.items()}


def _equal(one: object, other: object) -> bool:
    """Whether two values are equal, or both NaN."""
    return one == other or (_is_nan(one) and _is_nan(other))


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _none_counted() -> np.ndarray:
    return np.zeros(0, np.int64)


def _none_timed() -> np.ndarray:
    return np.zeros(0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What a server did, in sums, from which the means of a measurement are made."""

    requests: int
    """Requests that the sums are over: those answered."""
    queue: float = NOT_KNOWN
    """Time that they waited inside the server, s; NaN where nobody counts it."""
    compute: float = NOT_KNOWN
    """Time that they spent in execution, s; each request counts its whole batch. NaN like `queue`."""
    inferences: int = 0
    """Rows inferred: more than ``requests`` where requests carry several rows. 0 where nobody counts them."""
    batch_counts: np.ndarray = field(default_factory=_none_counted)
    """Executions per batch size; empty where nobody counts them.   # (B+1,) int64, batch_counts[0] unused"""
    batch_seconds: np.ndarray = field(default_factory=_none_timed)
    """Time in them, 0 where nobody counts it.   # (B+1,) s"""

    def since(self, earlier: Work) -> Work:
        """Return the work between earlier totals and these."""
        length = max(len(earlier.batch_counts), len(self.batch_counts), 1)
        return Work(
            requests=self.requests - earlier.requests,
            queue=self.queue - earlier.queue,
            compute=self.compute - earlier.compute,
            inferences=self.inferences - earlier.inferences,
            batch_counts=_padded(self.batch_counts, length) - _padded(earlier.batch_counts, length),
            batch_seconds=_padded(self.batch_seconds, length) - _padded(earlier.batch_seconds, length),
        )

    def measurement(
        self, *, start: float, end: float, configuration: Configuration, **known: Any
    ) -> Measurement:
        """Return the measurement of the window.

        Args:
            start: When it began, s.
            end: When it ended, s.
            configuration: What the server ran.
            known: Further fields of :class:`Measurement`, and those that were measured better elsewhere.
        """
        counts, rows = self.batch_counts, self.inferences or NOT_KNOWN
        sums: dict[str, Any] = {
            "requests": self.requests,
            "queue_mean": _ratio(self.queue, self.requests),
            "compute_mean": _ratio(self.compute, self.requests),
            "batch_mean": _ratio(rows, int(counts[1:].sum())),
            "request_rows": _ratio(rows, self.requests),
            "busy_instances": self._busy(end - start),
            "batches": {int(size): int(counts[size]) for size in np.flatnonzero(counts) if size > 0},
            "profile": fit_profile(counts, self.batch_seconds),
        }
        return Measurement(start=start, end=end, configuration=configuration, **{**sums, **known})

    def _busy(self, seconds: float) -> float:
        """Return the mean number of executions at a time; NaN if nobody counts the time in them."""
        if self.requests > 0 and not self.batch_seconds.any():
            return NOT_KNOWN
        return _ratio(self.batch_seconds.sum(), seconds)


def known(value: float, digits: int | None = None) -> float | None:
    """Return a number for files and answers: None if it is not known or infinite, rounded if wanted."""
    if not math.isfinite(value):
        return None
    return value if digits is None else round(value, digits)


def median_known(values: Iterable[float]) -> float:
    """Return the median of what is known among values; NaN if nothing is."""
    found = [value for value in values if math.isfinite(value)]
    return float(np.median(found)) if found else NOT_KNOWN


def latencies(mean: float, quantiles: Iterable[float]) -> dict[str, float]:
    """Return the latency fields of a measurement, s.

    Args:
        mean: s.
        quantiles: Those of :data:`QUANTILES`, in its order, s.
    """
    return {
        f"latency_{statistic}": float(value)
        for statistic, value in zip(STATISTICS, [mean, *quantiles], strict=True)
    }


def _declared() -> Iterator[Quantity]:
    """Yield what the annotations of the fields say."""
    for name, hint in get_type_hints(Measurement, include_extras=True).items():
        kind, *notes = get_args(hint) or (hint,)
        for note in notes:
            if isinstance(note, Quantity):
                yield note.declared(name, kind)


def _plain(value: object) -> object:
    if isinstance(value, float):
        return known(value)
    return list(value) if isinstance(value, tuple) else value


def _padded(values: np.ndarray, length: int) -> np.ndarray:
    return np.pad(np.asarray(values), (0, length - len(values)))


def _ratio(total: float, count: float) -> float:
    return float(total) / count if count > 0 else NOT_KNOWN


QUANTITIES = tuple(_declared())
"""All measured quantities, in the order of their fields."""
STATISTICS = tuple(quantity.statistic for quantity in QUANTITIES if quantity.statistic)
"""Statistics of the latency that are measured: the mean and quantiles."""
QUANTILES = {statistic: int(statistic[1:]) / 100 for statistic in STATISTICS if statistic != "mean"}
"""The quantiles among them, 0 to 1."""
