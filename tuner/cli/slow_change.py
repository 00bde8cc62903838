"""Says on the terminal that a change takes long: while a model loads, for minutes maybe, no window ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["AFTER", "SlowChange"]

AFTER = 10.0
"""s after which a change takes long; most take a second."""
AGAIN = 60.0
"""s until it is said again."""


class SlowChange:
    """Watches one change after the other, in a thread for each.

    Life: `begin` before a change, `end` after it; an `end` without a `begin` does nothing.

    Args:
        say: Receives the sentences, in another thread.
        after: s after which a change takes long.
        again: s until it is said again.
    """

    def __init__(self, say: Callable[[str], object], after: float = AFTER, again: float = AGAIN) -> None:
        self._say, self._after, self._again = say, after, again
        self._ended: threading.Event | None = None

    def begin(self, wanted: str) -> None:
        """Note that a change begins.

        Args:
            wanted: What the server is to run, in words.
        """
        self.end()
        self._ended = threading.Event()
        arguments = self._ended, wanted, time.monotonic()
        threading.Thread(target=self._watch, args=arguments, name="slow-change", daemon=True).start()

    def end(self) -> None:
        """Note that it has ended."""
        if self._ended is not None:
            self._ended.set()
        self._ended = None

    def _watch(self, ended: threading.Event, wanted: str, begun: float) -> None:
        pause = self._after
        while not ended.wait(pause):
            seconds, pause = time.monotonic() - begun, self._again
            self._say(f"still changing the server to {wanted} ({seconds:.0f} s so far)")
