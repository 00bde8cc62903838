"""Durations as people write them (``30ms``, ``1.5s``, ``2m``), in seconds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal

from tuner.errors import InvalidInput

__all__ = ["format_duration", "format_latency", "format_ms", "is_cut", "parse_duration"]

PART = re.compile(r"([\d.]+)([a-zµμ]+)")
"""A number and its unit; micro is its sign or the letter mu."""


def parse_duration(text: str, setting: str) -> float:
    """Read a duration in Go's notation.

    Args:
        text: Such as ``30ms`` or ``1m30s``; a bare ``0`` is zero.
        setting: The setting it belongs to, for the error.

    Returns:
        Seconds, at least 0.

    Raises:
        InvalidInput: Not a duration, negative or not finite.
    """
    import durationpy.duration

    try:
        durationpy.from_str(text.strip())  # it rounds to microseconds: 100ns would be 0
        seconds = _exact(text.strip(), durationpy.duration.units)
    except (durationpy.DurationError, ValueError, OverflowError, IndexError):
        raise InvalidInput(setting, f"'{text}' is not a duration", "write it like 30ms, 1.5s or 2m") from None
    if not math.isfinite(seconds) or seconds < 0:
        raise InvalidInput(setting, f"'{text}' is negative or not finite", "write it like 30ms, 1.5s or 2m")
    return seconds


def _exact(text: str, units: Mapping[str, int]) -> float:
    """Return the seconds of a duration that is one; of each unit it is known how many ns it has."""
    total = sum(Decimal(number) * units[unit] for number, unit in PART.findall(text))
    return float(total / 10**9) * (-1 if text.startswith("-") else 1)


def format_duration(seconds: float) -> str:
    """Write a duration with the unit that reads best: ``0``, ``12.3ms``, ``1.50s``."""
    if not math.isfinite(seconds):
        return "-"
    if seconds == 0:
        return "0ms"
    if abs(seconds) < 1:
        return f"{seconds * 1e3:.3g}ms" if abs(seconds) < 0.1 else f"{seconds * 1e3:.0f}ms"
    return f"{seconds:.3g}s" if abs(seconds) < 100 else f"{seconds:.0f}s"


def is_cut(latency: float | None, cut_off: float | None) -> bool:
    """Whether a latency reaches what unanswered requests count with: the end of its window cut it off.

    Args:
        latency: A statistic of the window's latencies; None or NaN if it is not known.
        cut_off: See :attr:`tuner.measurement.Measurement.cut_off`; None or NaN if nothing was cut off.
    """
    rounding = 1e-6  # a quantile lies between equal numbers, and files hold rounded ones
    return latency is not None and cut_off is not None and latency >= cut_off * (1 - rounding)


def format_latency(latency: float, cut_off: float) -> str:
    """Write a latency; one that its window cut off is ``over 6s``: it may be far more."""
    return (
        f"over {format_duration(_floor(latency))}" if is_cut(latency, cut_off) else format_duration(latency)
    )


def format_ms(latency: float | None, cut_off: float | None) -> str:
    """Write a latency in ms for a column whose heading has the unit; both arguments are in ms."""
    if latency is None or not math.isfinite(latency):
        return "–"
    return f"over {_floor(latency):,.0f}" if is_cut(latency, cut_off) else f"{latency:,.1f}"


def _floor(value: float) -> float:
    """Round down to two digits: 6.03 to 6."""
    if not value > 0:
        return value
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.floor(value / digit + 1e-9) * digit
