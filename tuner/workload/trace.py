"""Arrivals read from a trace file."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np

from tuner.errors import InvalidInput
from tuner.workload.arrivals import SETTING, Scheduled

__all__ = ["Trace", "moment_of", "read_send_times", "read_times"]

WHOLE_SECOND = re.compile(r"\d\d:\d\d:\d\d$")
"""The end of a date that a decimal comma may follow: no fraction, no time zone."""
FRACTION = re.compile(r"(\d{3}|\d{6})\b")
"""What begins as a log's ms or us behind a decimal comma, such as ``978`` or ``978 - root - INFO``."""


@dataclass(frozen=True, slots=True)
class Trace(Scheduled):
    """Send times from a file, one per line or in the first column of a CSV, counted from the first.

    All times are numbers of seconds, or all are dates with a time of day such as ``2023-11-16 18:17:03.97``.
    Empty lines and lines that begin with ``#`` are skipped, and so is a heading in line 1.

    Raises:
        InvalidInput: The file cannot be read, a line is not a time, is one of the other kind or goes back, or
            the times may have decimal commas; names the line.
    """

    path: Path
    seconds: np.ndarray = field(init=False, compare=False, repr=False)
    """Send times from 0 on.   # (n,) s"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", read_send_times(self.path, f"{SETTING} trace:{self.path}"))

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


def read_send_times(path: Path, setting: str) -> np.ndarray:
    """Read the times of a trace, counted from the first; see :class:`Trace` for its form and the errors.

    Args:
        path: The file.
        setting: What the user calls it, for errors.

    Returns:
        Seconds from 0 on, not decreasing.   # (n,), n >= 1
    """
    lines = _Lines()
    seconds = read_times(path, setting, lines.time_of)
    if lines.comma:
        line, date, digits = lines.comma
        problem = f"line {line}: '{date},{digits}' may have a decimal comma, at which a CSV is split"
        other = f"where {digits} is a column of its own, a heading of both columns into line 1"
        raise InvalidInput(setting, problem, f"write {date}.{digits}, or, {other}")
    return seconds


class _Lines:
    """The lines of a trace, one after the other."""

    def __init__(self) -> None:
        self.comma: tuple[int, str, str] | None = None
        """A line, its date and what may be its fraction, if all dates so far may have a decimal comma."""
        self._dates: bool | None = None
        self._sound = False  # whether some line says that the second field is no fraction

    def time_of(self, line: int, row: list[str]) -> float | None:
        """Return a line's time, s, or None for a line that is skipped.

        Raises:
            ValueError: It has none, or one of another kind than the lines before; says what it has.
        """
        text = row[0].strip()
        if not text or text.startswith("#"):
            return None
        number = _number(text)
        time = moment_of(text) if number is None else number
        if time is None:
            if line == 1:
                self._sound = len(row) > 1
                return None
            form = "in seconds, nor one such as 2023-11-16 18:17:03.97"
            raise ValueError(f"'{text:.40}' is not a time {form}; put the times into the first column")
        if not math.isfinite(time):
            raise ValueError(f"'{text}' is not finite")
        dates = number is None
        if self._dates not in (None, dates):
            kind = "a date" if dates else "a number of seconds"
            raise ValueError(
                f"'{text:.40}' is {kind}, unlike the lines before; write all as one or the other"
            )
        self._dates = dates
        if dates:
            self._look_for_comma(line, text, row[1] if len(row) > 1 else "")
        return time

    def _look_for_comma(self, line: int, date: str, second: str) -> None:
        found = FRACTION.match(second)
        self._sound |= found is None or not WHOLE_SECOND.search(date)
        if self._sound or found is None:
            self.comma = None
        elif self.comma is None:
            self.comma = (line, date, found[1])


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def moment_of(text: str) -> float | None:
    """Return the seconds since 1970 of a date with a time of day, UTC unless it says otherwise; else None."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
