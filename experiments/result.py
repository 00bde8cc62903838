"""The recorded result of an experiment: rows of published and measured values with their spread."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any, ClassVar

from pydantic import Field, model_validator

from tuner.stored import Part, Stored

__all__ = ["Result", "Row", "Series", "curve", "row"]


class Row(Part):
    """One figure."""

    id: str
    published: float | None = None
    """The paper's or the issue's value; None where there is none."""
    measured: float | None
    """Median over seeds or repeats."""
    low: float | None = None
    high: float | None = None
    unit: str = ""
    note: str = ""


class Series(Part):
    """One curve of a figure."""

    name: str
    """Which curve it is, such as a policy."""
    panel: str = ""
    """Which panel of the figure it belongs to, where there are several."""
    x: list[float]
    y: list[float | None]
    """Median over seeds; None where nothing was measured."""
    low: list[float | None] = Field(default_factory=list)
    """Least over seeds; empty if there is no spread."""
    high: list[float | None] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check(self) -> Series:
        lengths = {len(self.x), len(self.y), len(self.low or self.x), len(self.high or self.x)}
        if len(lengths) > 1:
            raise ValueError(f"x, y, low and high of a curve must be equally long, but got {lengths}")
        return self


class Result(Stored):
    """A whole experiment."""

    what: ClassVar[str] = "result"

    experiment: str
    seeds: int
    seconds: float = 0.0
    """How long it took; the command fills it in."""
    command: str = ""
    """As it was typed; likewise."""
    started: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    machine: str = Field(
        default_factory=lambda: (
            f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
        )
    )
    configuration: dict[str, Any] = Field(default_factory=dict)
    rows: list[Row] = Field(default_factory=list)
    series: list[Series] = Field(default_factory=list)
    """The curves of the figures."""
    details: dict[str, Any] = Field(default_factory=dict)
    """Everything measured, as plain values."""

    def panel(self, name: str = "") -> list[Series]:
        """Return the curves of one panel of the figure."""
        return [series for series in self.series if series.panel == name]


def row(
    name: str, values: Sequence[float], *, unit: str = "", published: float | None = None, note: str = ""
) -> Row:
    """Summarise repeated values: median, least and greatest.

    A value that is not finite was not reached: it counts as the greatest, and the note says how many.
    """
    ordered = sorted(v if math.isfinite(v) else math.inf for v in values)
    missing = sum(math.isinf(v) for v in ordered)
    if missing:
        note = f"{note}; {missing} of {len(values)} not reached".lstrip("; ")
    return Row(
        id=name,
        published=published,
        measured=_figure(median(ordered)),
        low=_figure(ordered[0]),
        high=_figure(ordered[-1]),
        unit=unit,
        note=note,
    )


def curve(name: str, x: Sequence[float], values: Sequence[Sequence[float]], *, panel: str = "") -> Series:
    """Summarise a curve: per point the median, least and greatest of its repeated values.

    Args:
        name: Which curve it is.
        x: Where its points are.
        values: Per point the values of all seeds; those that are not finite were not measured.
        panel: Which panel of the figure it belongs to.
    """
    rows = [row(name, [v for v in repeats if math.isfinite(v)] or [math.inf]) for repeats in values]
    spread = any(len(repeats) > 1 for repeats in values)
    return Series(
        name=name,
        panel=panel,
        x=[float(value) for value in x],
        y=[point.measured for point in rows],
        low=[point.low for point in rows] if spread else [],
        high=[point.high for point in rows] if spread else [],
    )


def _figure(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None
