"""The result of a benchmark: rows of values, each beside a baseline taken in the same run."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import ClassVar, TypeVar

from pydantic import Field

from tuner.files.stored import Part, Stored
from tuner.laboratory.parallel import cores
from tuner.laboratory.progress import Bars, no_bars, track

__all__ = ["BenchOptions", "BenchReport", "BenchRow", "compared", "cpu_seconds", "seconds_of"]


Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchOptions:
    """How much a benchmark measures, and who watches."""

    repeats: int
    quick: bool = False
    bars: Bars = no_bars

    def track(self, items: Iterable[Item], description: str) -> Iterator[Item]:
        """Yield the items while a progress bar counts them."""
        return track(items, description, self.bars)


class BenchRow(Part):
    """One number of a benchmark, beside what it is compared with."""

    id: str
    value: float
    """Median over the repeats."""
    unit: str
    baseline: float | None = None
    """What the value is compared with, in the same unit; the note says what it is."""
    ratio: float | None = None
    """How many times better than the baseline."""
    note: str = ""


class BenchReport(Stored):
    """A whole benchmark."""

    what: ClassVar[str] = "report"

    benchmark: str
    command: str
    seconds: float
    """How long it took."""
    repeats: int
    rows: list[BenchRow]
    started: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    machine: str = Field(
        default_factory=lambda: (
            f"{platform.system()} {platform.machine()}, {cores()} cores, Python {platform.python_version()}"
        )
    )
    load_average: float = Field(default_factory=lambda: round(os.getloadavg()[0], 1))
    """Processes that wanted a core in the last minute, on average, this one included."""


def compared(
    name: str, value: float, baseline: float | None, unit: str, *, less: bool = False, note: str = ""
) -> BenchRow:
    """Return a row with its ratio.

    Args:
        name: Of the row.
        value: What was measured.
        baseline: Compared with; None if there is nothing to compare with.
        unit: Of both.
        less: Whether less is better.
        note: What the baseline is.
    """
    ratio = None
    if baseline:
        ratio = _rounded(baseline / value if less else value / baseline)
    return BenchRow(
        id=name,
        value=_rounded(value),
        unit=unit,
        baseline=None if baseline is None else _rounded(baseline),
        ratio=ratio,
        note=note,
    )


def seconds_of(work: Callable[[], object], repeats: int) -> float:
    """Return the median time that some work takes on its core, s. It is done once before, to compile."""
    work()
    return median(cpu_seconds(work) for _ in range(repeats))


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return how long this process is on a core during some work, s: other processes do not lengthen it."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
