"""How far rounding may move numbers that are equal."""

from __future__ import annotations

__all__ = ["ROUNDING"]

ROUNDING = 1e-9
"""Relative: numbers that differ by less count as equal, such as 0.1 + 0.2 and 0.3."""
