"""Fixtures that run the command line."""

from __future__ import annotations

from tests.cli.planning import plan
from tests.command_line import fails, figures, one_core, run, tuner

__all__ = ["fails", "figures", "one_core", "plan", "run", "tuner"]
