"""Arrivals read from a trace file."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from tuner.errors import InvalidInput
from tuner.profiler.arrivals import SETTING, Arrival, scheduled

__all__ = ["Trace"]


@dataclass(frozen=True, slots=True)
class Trace:
    """Send times from a file: seconds, one per line or in the first column of a CSV, counted from the first.

    Empty lines and lines that begin with ``#`` are skipped, and so is a heading in line 1.

    Raises:
        InvalidInput: The file cannot be read, or a line is not a time or goes back; names the line.
    """

    path: Path
    seconds: np.ndarray = field(init=False, compare=False, repr=False)
    """Send times from 0 on.   # (n,) s"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", _read_trace(self.path))

    def __str__(self) -> str:
        return f"trace:{self.path}"

    def times(self, generator: np.random.Generator) -> Iterator[float]:  # noqa: ARG002
        """Yield the times of the file; nothing is random."""
        return iter(self.seconds.tolist())

    def at_rate(self, rate: float) -> Arrival:
        """Refuse: a trace has its own rates."""
        raise scheduled(rate, self)


def _read_trace(path: Path) -> np.ndarray:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            times = [
                t for line, row in enumerate(csv.reader(file), 1) if (t := _row(path, line, row)) is not None
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{SETTING} trace:{path}", f"cannot be read: {error}") from None
    if not times:
        raise InvalidInput(f"{SETTING} trace:{path}", "holds no send times", "write one per line, in seconds")
    for (line, earlier), (next_line, later) in pairwise(times):
        if later < earlier:
            problem = f"line {next_line} goes back: {later:g} s after {earlier:g} s in line {line}"
            raise InvalidInput(f"{SETTING} trace:{path}", problem, "sort it")
    seconds = np.array([time for _, time in times])
    return np.asarray(seconds - seconds[0])


def _row(path: Path, line: int, row: list[str]) -> tuple[int, float] | None:
    """Return line and time, or None for a line that is skipped."""
    text = row[0].strip() if row else ""
    if not text or text.startswith("#"):
        return None
    try:
        time = float(text)
    except ValueError:
        if line == 1:
            return None
        raise InvalidInput(
            f"{SETTING} trace:{path}", f"line {line}: '{text}' is not a time in seconds"
        ) from None
    if not math.isfinite(time):
        raise InvalidInput(f"{SETTING} trace:{path}", f"line {line}: '{text}' is not finite")
    return line, time
