"""Fixtures that run the command line."""

from __future__ import annotations

from tests.command_line import run

__all__ = ["run"]
