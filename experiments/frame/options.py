"""What an experiment is given: how much to measure, where earlier results lie, and who watches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tuner.laboratory.parallel import cores, run_all
from tuner.laboratory.progress import Bars, no_bars, track

__all__ = ["ExperimentOptions", "Options", "Watcher"]

Item = TypeVar("Item")
Task = TypeVar("Task")
Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentOptions:
    """How much an experiment measures."""

    seeds: int
    """How often everything is repeated, each time with other random numbers."""
    quick: bool = False
    """Whether a short version is enough, which shows that it works."""
    folder: Path = Path()
    """Where earlier results lie, which some experiments build on."""
    foreign_limit: float = 0.25
    """Cores of foreign processes above which a window on a live server is measured again."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What every experiment is given."""

    seeds: int
    quick: bool
    folder: Path
    """Where earlier results lie, which some experiments build on."""
    report: Callable[[str], None]
    """Called with a line about progress."""
    bars: Bars = no_bars
    """Opens a progress bar where somebody watches."""
    foreign_limit: float = 0.25
    """Cores of foreign processes above which a window on a live server is measured again."""
    workers: int = field(default_factory=cores)
    """Processes that the tasks of an experiment are spread over."""

    def run_all(
        self, function: Callable[[Task], Answer], tasks: Sequence[Task], description: str
    ) -> list[Answer]:
        """Return the answers to all tasks; see :func:`tuner.laboratory.parallel.run_all`."""
        return run_all(function, tasks, description, bars=self.bars, workers=self.workers)

    def track(self, items: Iterable[Item], description: str, total: int | None = None) -> Iterator[Item]:
        """Yield the items while a progress bar counts them; see :func:`tuner.laboratory.progress.track`."""
        return track(items, description, self.bars, total=total)
