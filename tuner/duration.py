"""Durations as people write them (``30ms``, ``1.5s``, ``2m``), in seconds."""

from __future__ import annotations

import math

from tuner.errors import InvalidInput

__all__ = ["format_duration", "parse_duration"]


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
    import durationpy

    try:
        seconds = float(durationpy.from_str(text.strip()).total_seconds())
    except (durationpy.DurationError, ValueError, OverflowError, IndexError):
        raise InvalidInput(setting, f"'{text}' is not a duration", "write it like 30ms, 1.5s or 2m") from None
    if not math.isfinite(seconds) or seconds < 0:
        raise InvalidInput(setting, f"'{text}' is negative or not finite", "write it like 30ms, 1.5s or 2m")
    return seconds


def format_duration(seconds: float) -> str:
    """Write a duration with the unit that reads best: ``0``, ``12.3ms``, ``1.50s``."""
    if not math.isfinite(seconds):
        return "-"
    if seconds == 0:
        return "0ms"
    if abs(seconds) < 1:
        return f"{seconds * 1e3:.3g}ms" if abs(seconds) < 0.1 else f"{seconds * 1e3:.0f}ms"
    return f"{seconds:.3g}s" if abs(seconds) < 100 else f"{seconds:.0f}s"
