"""Lets what ends a command wait until a change of a server has ended.

Ctrl-C in the middle of a change would give up the waiting for it, but not the change: the server could come
to run it after it was asked for the last time.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uninterrupted"]

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let signals that would end the process wait until the block has ended.

    Only the main thread handles signals; in others there is nothing to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for one in dict.fromkeys(came):  # each: nohup lets the process ignore SIGHUP
            signal.raise_signal(one)
