"""The report of a run as plain data: the content of ``report.json``, from which every plot is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from tuner.files.stored import Part, Stored, with_fields
from tuner.measurement import QUANTITIES, STATISTICS, Measurement, Quantity, known, median_known

__all__ = ["LearnedCost", "LevelReport", "Report", "Served", "Server", "WindowReport", "served"]

Number = float | None
"""A quantity, or None where nobody measured it."""
AVERAGED = [quantity for quantity in QUANTITIES if not quantity.counted]
"""Quantities that have a median over windows."""


def _columns(quantities: Iterable[Quantity]) -> dict[str, Any]:
    """Fields for quantities; a report that was written before one was measured has none of it."""
    return {quantity.report: (quantity.kind | None, None) for quantity in quantities}


class Server(Part):
    """The model server."""

    name: str
    version: str


class Measured(Part):
    """A part that has fields for what was measured."""

    def figure(self, name: str) -> Number:
        """Return a quantity by its name in reports."""
        value: Number = getattr(self, name)
        return value


@with_fields(_columns(AVERAGED))
class Served(Measured):
    """How one configuration served under one load."""

    configuration: dict[str, float]
    slo_kept: bool
    windows: int = 1
    """How many windows the medians are over."""


@with_fields(_columns(QUANTITIES))
class WindowReport(Measured):
    """One window of the run."""

    number: int
    phase: str
    start: float
    """Seconds since the run began."""
    seconds: float
    configuration: dict[str, float]
    slo_kept: bool
    cost: Number
    level: int | None
    decision: str
    """``hold``, ``apply`` or ``rollback``."""
    reason: str
    next_configuration: dict[str, float] | None
    """The configuration that was applied at the window's end, if any."""
    decided_configuration: dict[str, float] | None = None
    """The configuration that was decided on, applied or not: a dry run applies none. None for ``hold``."""
    disturbed: list[str]


class LevelReport(Part):
    """How the server served before and after tuning, under one load."""

    rate: float
    before: Served
    after: Served


class LearnedCost(Part):
    """The costs that the agent learned under one load level."""

    rate: float
    """In the middle of the level, requests/s."""
    least: Number = None
    """The least rate that counts as this load; None in reports of before."""
    most: Number = None
    """The greatest one."""
    foreign_share: Number = None
    """The share of the machine that other processes took."""
    costs: list[Number]
    """One per configuration, in the order of the knob space."""
    visits: list[int]
    measured: list[Number] = Field(default_factory=list)
    """Mean cost of the windows that ran each configuration; None where none did."""
    chosen: dict[str, float] | None = None
    """What ran last under this load."""

    @property
    def load(self) -> str:
        """The load, for people: in whole requests/s, or with three digits."""
        ends = [self.rate] if self.least is None or self.most is None else [self.least, self.most]
        shown = " to ".join(f"{end:.0f}" if end >= 100 else f"{end:.3g}" for end in ends)
        beside = f", beside {self.foreign_share:.0%}" if self.foreign_share else ""
        return f"{shown} requests/s{beside}"


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
    statistic: Literal[STATISTICS]  # type: ignore[valid-type]  # the one list of statistics
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
    windows_to_slo: dict[str, int] = Field(default_factory=dict, exclude=True)
    """Reports of before have it, always empty."""
    profile: dict[str, Number] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)


def milliseconds(seconds: float) -> Number:
    """Return ms to three digits after the point, None for NaN."""
    return known(seconds * 1e3, 3)


def figures(values: Mapping[Quantity, float]) -> dict[str, Number]:
    """Return quantities as reports write them: durations in ms."""
    return {
        quantity.report: milliseconds(value) if quantity.unit == "s" else known(value, 4)
        for quantity, value in values.items()
    }


def served(measurements: Sequence[Measurement], configuration: Mapping[str, float], *, kept: bool) -> Served:
    """Summarise windows of one configuration by the median of each quantity."""
    medians = {quantity: median_known(m.value(quantity) for m in measurements) for quantity in AVERAGED}
    return Served(
        configuration=dict(configuration),
        slo_kept=kept,
        windows=len(measurements),
        **figures(medians),
    )
