"""The report of a run as plain data: what ``report.json`` holds and every plot is drawn from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from tuner.measurement import Measurement
from tuner.stored import Part, Stored

__all__ = ["LearnedCost", "LevelReport", "Report", "Served", "Server", "WindowReport", "served"]

Number = float | None
"""A quantity, or None where nobody measured it."""


class Server(Part):
    """Who served."""

    name: str
    version: str


class Served(Part):
    """How one configuration served under one load."""

    configuration: dict[str, float]
    load: Number
    p50_ms: Number
    p95_ms: Number
    p99_ms: Number
    mean_ms: Number
    batch_mean: Number
    cpu: Number
    slo_kept: bool
    windows: int = 1
    """How many windows the figures are the median of."""


class WindowReport(Part):
    """One window of the run."""

    number: int
    phase: str
    start: float
    """Seconds since the run began."""
    seconds: float
    load: Number
    burstiness: Number
    configuration: dict[str, float]
    p50_ms: Number
    p95_ms: Number
    p99_ms: Number
    mean_ms: Number
    queue_ms: Number
    compute_ms: Number
    batch_mean: Number
    cpu: Number
    foreign_cpu: Number
    gpu: Number
    failures: int
    slo_kept: bool
    cost: Number
    level: int | None
    decision: str
    """``hold``, ``apply`` or ``rollback``."""
    reason: str
    next_configuration: dict[str, float] | None
    """What was applied at the window's end, if anything."""
    disturbed: list[str]


class LevelReport(Part):
    """Before and after under one load."""

    rate: float
    before: Served
    after: Served


class LearnedCost(Part):
    """What the agent learned under one load level."""

    rate: float
    costs: list[Number]
    """One per configuration, in the order of the knob space."""
    visits: list[int]


class Report(Stored):
    """A whole run."""

    what: ClassVar[str] = "report"

    version: int = 1
    title: str
    command: str
    started: str
    """UTC, ISO 8601."""
    server: Server
    model: str
    objective: str
    slo_ms: float
    statistic: str
    """The latency statistic the SLO is on."""
    knobs: list[dict[str, Any]]
    before: Served | None = None
    after: Served | None = None
    levels: list[LevelReport] = Field(default_factory=list)
    windows: list[WindowReport] = Field(default_factory=list)
    learned: list[LearnedCost] = Field(default_factory=list)
    failed_requests: int = 0
    sent_requests: int = 0
    reconfigurations: int = 0
    windows_to_slo: dict[str, int] = Field(default_factory=dict)
    profile: dict[str, Number] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)


def milliseconds(seconds: float) -> Number:
    """Return ms to three digits after the point, None for NaN."""
    return round(seconds * 1e3, 3) if math.isfinite(seconds) else None


def number(value: float, digits: int = 4) -> Number:
    """Return a rounded number, None for NaN and infinity."""
    return round(value, digits) if math.isfinite(value) else None


def served(measurements: Sequence[Measurement], configuration: Mapping[str, float], *, kept: bool) -> Served:
    """Summarise windows of one configuration by the median of each figure."""
    import numpy as np

    def median(name: str) -> float:
        values = [v for m in measurements if math.isfinite(v := float(getattr(m, name)))]
        return float(np.median(values)) if values else math.nan

    return Served(
        configuration=dict(configuration),
        load=number(median("arrival_rate")),
        p50_ms=milliseconds(median("latency_p50")),
        p95_ms=milliseconds(median("latency_p95")),
        p99_ms=milliseconds(median("latency_p99")),
        mean_ms=milliseconds(median("latency_mean")),
        batch_mean=number(median("batch_mean")),
        cpu=number(median("cpu")),
        slo_kept=kept,
        windows=len(measurements),
    )
