"""Progress bars, as those who do the work see them: somebody who watches passes a function that opens one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

__all__ = ["Advance", "Bars", "no_bars", "track"]

Item = TypeVar("Item")
Advance = Callable[[], None]
"""Moves a bar on by one step."""
Bars = Callable[[str, int], AbstractContextManager[Advance]]
"""Opens a progress bar: a description and the number of steps."""


@contextmanager
def no_bars(description: str, total: int) -> Iterator[Advance]:  # noqa: ARG001 - shows nothing
    """Show no progress bar; the default where nobody watches."""
    yield lambda: None


def track(
    items: Iterable[Item], description: str, bars: Bars = no_bars, *, total: int | None = None
) -> Iterator[Item]:
    """Yield the items while a progress bar shows how many are done.

    Args:
        items: What is worked on.
        description: A few words beside the bar.
        bars: Opens the bar.
        total: How many there are, if ``len`` cannot tell.
    """
    if total is None:
        assert isinstance(items, Sized), "say the total of what has no length"
        total = len(items)
    with bars(description, total) as advance:
        for item in items:
            yield item
            advance()
