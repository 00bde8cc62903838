"""Fixtures that run the command line."""

from __future__ import annotations

from tests.command_line import fails, run, tuner

__all__ = ["fails", "run", "tuner"]
