"""The recorded result of an experiment: rows of published and measured values with their spread."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tuner.errors import StorageError
from tuner.storage import write_atomically

__all__ = ["Result", "Row", "row"]


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
    details: dict[str, Any] = {}
    """Everything measured, as plain values."""

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


def _figure(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None
