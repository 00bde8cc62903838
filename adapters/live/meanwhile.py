"""Goes on reading what a server counts while it is changed: until it begins at 0 again, nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context

from tuner.errors import TunerError

__all__ = ["EVERY", "read_meanwhile"]

EVERY = 0.1
"""s between two readings: what is lost at the reset then looks like chance."""


@contextmanager
def read_meanwhile(read: Callable[[], object], *, every: float = EVERY) -> Iterator[None]:
    """Read again and again, in a thread, for the length of a block.

    Args:
        read: Takes a reading; a server that does not answer while it is changed is asked again.
        every: s between two readings.
    """
    ended = threading.Event()

    def go_on() -> None:
        while not ended.wait(every):
            with suppress(TunerError):
                read()

    thread = threading.Thread(target=copy_context().run, args=(go_on,), name="meanwhile", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
