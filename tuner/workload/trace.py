"""Arrivals read from a trace file."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np

from tuner.errors import InvalidInput
from tuner.workload.arrivals import SETTING, Scheduled

__all__ = ["Trace", "moment_of", "read_times", "send_time"]


@dataclass(frozen=True, slots=True)
class Trace(Scheduled):
    """Send times from a file, one per line or in the first column of a CSV, counted from the first.

    A time is a number of seconds, or a date with a time of day such as ``2023-11-16 18:17:03.97``. Empty
    lines and lines that begin with ``#`` are skipped, and so is a heading in line 1.

    Raises:
        InvalidInput: The file cannot be read, or a line is not a time or goes back; names the line.
    """

    path: Path
    seconds: np.ndarray = field(init=False, compare=False, repr=False)
    """Send times from 0 on.   # (n,) s"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", read_times(self.path, f"{SETTING} trace:{self.path}", send_time))

    def __str__(self) -> str:
        return f"trace:{self.path}"

    def times(self, generator: np.random.Generator) -> Iterator[float]:  # noqa: ARG002
        """Yield the times of the file; nothing is random."""
        return iter(self.seconds.tolist())


def read_times(path: Path, setting: str, time_of: Callable[[int, list[str]], float | None]) -> np.ndarray:
    """Read the times of a CSV file, one per line, counted from the first.

    Args:
        path: The file.
        setting: What the user calls it, for errors.
        time_of: Given a line's number and fields, returns its time in seconds, or None for a line to skip;
            raises ValueError with what is wrong with it.

    Returns:
        Seconds from 0 on, not decreasing.   # (n,), n >= 1

    Raises:
        InvalidInput: The file cannot be read, or a line is unusable or goes back; names the line.
    """
    times: list[tuple[int, float]] = []
    line = 0
    try:
        # What is no UTF-8 shows as escapes, in the message about its line.
        with path.open(newline="", encoding="utf-8-sig", errors="backslashreplace") as file:
            reader = csv.reader(file)
            for row in reader:
                line = reader.line_num
                time = time_of(line, row) if row else None
                if time is not None:
                    times.append((line, time))
    except OSError as error:
        raise InvalidInput(setting, f"cannot be read: {error.strerror or error}") from None
    except (csv.Error, ValueError) as error:
        raise InvalidInput(setting, f"line {line or 1}: {error}") from None
    if not times:
        raise InvalidInput(setting, "holds no times", "write one per line")
    for (line, earlier), (next_line, later) in pairwise(times):
        if later < earlier:
            problem = f"line {next_line} goes back: {earlier - later:g} s before line {line}"
            raise InvalidInput(setting, problem, "sort it")
    seconds = np.array([time for _, time in times])
    return np.asarray(seconds - seconds[0])


def send_time(line: int, row: list[str]) -> float | None:
    """Return a line's time, s, or None for a line that is skipped; see :class:`Trace`.

    Raises:
        ValueError: It has none; says what it has.
    """
    text = row[0].strip()
    if not text or text.startswith("#"):
        return None
    try:
        time = float(text)
    except ValueError:
        moment = moment_of(text)
        if moment is not None or line == 1:
            return moment
        form = "in seconds, nor one such as 2023-11-16 18:17:03.97"
        raise ValueError(f"'{text:.40}' is not a time {form}; put the times into the first column") from None
    if not math.isfinite(time):
        raise ValueError(f"'{text}' is not finite")
    return time


def moment_of(text: str) -> float | None:
    """Return the seconds since 1970 of a date with a time of day, UTC unless it says otherwise; else None."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
