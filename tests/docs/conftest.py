"""Fixtures that run the command line."""

from __future__ import annotations

from tests.command_line import one_core, run

__all__ = ["one_core", "run"]
