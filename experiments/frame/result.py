"""The recorded result of an experiment: rows of published and measured values with their spread."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from tuner.errors import StorageError
from tuner.files.stored import Part, Stored
from tuner.report.series import Series, spread

__all__ = ["Result", "Row", "has_result", "now_text", "row"]


def now_text() -> str:
    """Return the time, as it stands in a result."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Row(Part):
    """One number of a result, beside the published one."""

    id: str
    published: float | None = None
    """The paper's or the issue's value; None where there is none."""
    measured: float | None
    """Median over seeds or repeats."""
    low: float | None = None
    high: float | None = None
    unit: str = ""
    note: str = ""


class Result(Stored):
    """A whole experiment."""

    what: ClassVar[str] = "result"

    experiment: str
    seeds: int
    seconds: float = 0.0
    """How long it took; the command fills it in."""
    command: str = ""
    """As it was typed; likewise."""
    started: str = Field(default_factory=now_text)
    """When it began; likewise."""
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


def has_result(folder: Path, name: str) -> bool:
    """Return whether a folder has the result of an experiment, or the report of a benchmark.

    Raises:
        StorageError: It cannot be read.
    """
    try:
        return (folder / f"{name}.json").exists()
    except OSError as error:
        raise StorageError(f"cannot read {folder}: {error.strerror or error}") from error


def row(
    name: str, values: Sequence[float], *, unit: str = "", published: float | None = None, note: str = ""
) -> Row:
    """Summarise repeated values: median, least and greatest.

    A value that is not finite was not reached: it counts as the greatest, and the note says how many.
    """
    missing = sum(not math.isfinite(value) for value in values)
    if missing:
        note = f"{note}; {missing} of {len(values)} not reached".lstrip("; ")
    middle, low, high = spread(values)
    return Row(id=name, published=published, measured=middle, low=low, high=high, unit=unit, note=note)
