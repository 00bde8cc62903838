"""What an experiment is given: how much to measure, where earlier results lie, and who watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tuner.laboratory.parallel import cores
from tuner.laboratory.progress import Bars, no_bars

__all__ = ["ExperimentOptions", "Watcher"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentOptions:
    """How much an experiment measures."""

    seeds: int
    """How often everything is repeated, each time with other random numbers."""
    quick: bool = False
    """Whether a short version is enough, which shows that it works."""
    folder: Path = Path()
    """Where earlier results lie, which some experiments build on."""
    foreign_limit: float | None = None
    """Cores of foreign processes above which a window on a live server is measured again; None: only windows
    in which contention moved are."""
    workers: int = field(default_factory=cores)
    """Processes that the measurements are spread over."""


def _silent(line: str) -> None:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Watcher:
    """Where progress is shown; nowhere by default."""

    report: Callable[[str], None] = _silent
    """Called with a line about progress."""
    bars: Bars = no_bars
    """Opens a progress bar."""
