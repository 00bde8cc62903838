"""What every experiment is told, and how it tells how far it has come."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

__all__ = ["Advance", "Bars", "Options", "cores"]

Item = TypeVar("Item")
Advance = Callable[[], None]
"""Tells that one more step is done."""
Bars = Callable[[str, int], AbstractContextManager[Advance]]
"""Opens a progress bar: a description and the number of steps."""


def cores() -> int:
    """Return how many processors this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every platform
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@contextmanager
def _no_bar(description: str, total: int) -> Iterator[Advance]:  # noqa: ARG001 - shows nothing
    yield lambda: None


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What every experiment is told."""

    seeds: int
    quick: bool
    folder: Path
    """Where earlier results lie, which some experiments build on."""
    report: Callable[[str], None]
    """Told in a line about progress."""
    bars: Bars = _no_bar
    """Opens a progress bar where somebody watches."""
    foreign_limit: float = 0.25
    """Cores of foreign processes above which a window on a live server is measured again."""
    workers: int = field(default_factory=cores)
    """Processes that :func:`tuner.laboratory.parallel.run_all` may use."""

    def track(self, items: Iterable[Item], description: str, total: int | None = None) -> Iterator[Item]:
        """Yield the items while a progress bar shows how many are done.

        Args:
            items: What is worked on.
            description: A few words beside the bar.
            total: How many there are, if ``len`` cannot tell.
        """
        if total is None:
            assert isinstance(items, Sized), "say the total of what has no length"
            total = len(items)
        with self.bars(description, total) as advance:
            for item in items:
                yield item
                advance()
