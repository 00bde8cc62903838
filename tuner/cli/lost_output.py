"""Output that cannot be written: its reader has gone, or the disk is full."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["give_up_output", "losing_output"]


def give_up_output() -> None:
    """Let Python write what is left of our output to nowhere; it would complain at its end if that failed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def losing_output() -> Iterator[None]:
    """At the end of the block give up what of the output cannot be written.

    For what runs for good: it goes on without a reader of its log, and how it ends says nothing of that.
    """
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            give_up_output()
