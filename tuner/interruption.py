"""Says what signals that end a command do: they wait for a change of a server, or end it at once.

Ctrl-C in the middle of a change would give up the waiting for it, but not the change: the server could come
to run it after it was asked for the last time.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["ending_well", "uninterrupted"]

HELD = "a change of the server is under way: stopping as soon as it has ended"
"""What somebody is told who stops a command meanwhile, because a model may take minutes to load."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ending_well() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the process at once, with exit code 0, until the block has other handlers.

    For what runs for good, and has begun nothing yet: it was stopped and has not failed. An exception could
    get lost in a module that is being imported.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is _end:  # else the block's own handler stays
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _end(*_: object) -> None:
    with suppress(OSError):
        os.write(2, b"stopped\n")
    os._exit(0)


@contextmanager
def uninterrupted(say: Callable[[str], object] | None = None) -> Iterator[None]:
    """Let signals that would end the process wait until the block has ended.

    Only the main thread handles signals; in others there is nothing to do.

    Args:
        say: Receives a sentence when the first signal comes; nobody is told if None.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in ENDING}

    def note(number: int, _: object) -> None:
        came.append(number)
        if say is not None and len(came) == 1 and before[signal.Signals(number)] is not signal.SIG_IGN:
            with suppress(OSError):  # whoever has closed the terminal reads nothing
                say(HELD)

    for number in ENDING:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for one in dict.fromkeys(came):  # each: nohup lets the process ignore SIGHUP
            signal.raise_signal(one)
