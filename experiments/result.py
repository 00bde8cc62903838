"""The recorded result of an experiment: rows of published and measured values with their spread."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tuner.errors import StorageError
from tuner.storage import write_atomically

__all__ = ["Result", "Row", "Series", "curve", "row"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Row(_Part):
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


class Series(_Part):
    """One curve of a figure."""

    name: str
    """Which curve it is, such as a policy."""
    panel: str = ""
    """Which panel of the figure it belongs to, where there are several."""
    x: list[float]
    y: list[float | None]
    """Median over seeds; None where nothing was measured."""
    low: list[float | None] = []
    """Least over seeds; empty if there is no spread."""
    high: list[float | None] = []

    @model_validator(mode="after")
    def _check(self) -> Series:
        lengths = {len(self.x), len(self.y), len(self.low or self.x), len(self.high or self.x)}
        if len(lengths) > 1:
            raise ValueError(f"x, y, low and high of a curve must be equally long, but got {lengths}")
        return self


class Result(_Part):
    """A whole experiment."""

    experiment: str
    seeds: int
    seconds: float
    """How long it took."""
    command: str
    started: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    machine: str = Field(
        default_factory=lambda: (
            f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
        )
    )
    configuration: dict[str, Any] = {}
    rows: list[Row] = []
    series: list[Series] = []
    """The curves of the figures."""
    details: dict[str, Any] = {}
    """Everything measured, as plain values."""

    def panel(self, name: str = "") -> list[Series]:
        """Return the curves of one panel of the figure."""
        return [series for series in self.series if series.panel == name]

    def save(self, path: Path) -> None:
        """Write the file.

        Raises:
            StorageError: The folder cannot be written.
        """
        write_atomically(path, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Result:
        """Read a stored result.

        Raises:
            StorageError: It cannot be read or is no result.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise StorageError(f"result {path}: {error.strerror or error}") from error
        except ValidationError as error:
            raise StorageError(f"result {path}: not a result of this version") from error


def row(
    name: str, values: Sequence[float], *, unit: str = "", published: float | None = None, note: str = ""
) -> Row:
    """Summarise repeated values: median, least and greatest.

    A value that is not finite was not reached: it counts as the greatest, and the note says how many.
    """
    ordered = sorted(v if math.isfinite(v) else math.inf for v in values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    missing = sum(math.isinf(v) for v in ordered)
    if missing:
        note = f"{note}; {missing} of {len(values)} not reached".lstrip("; ")
    return Row(
        id=name,
        published=published,
        measured=_figure(median),
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
