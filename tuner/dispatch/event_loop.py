"""The event loop of a dispatcher: uvloop's, which takes less of the cores per request, with a finer clock.

uvloop counts whole milliseconds, and the scheduler times batches by the clock of its loop. Timers still come
up to a millisecond late or early, as asyncio's come late.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import uvloop

__all__ = ["DispatchLoop", "run"]


class DispatchLoop(uvloop.Loop):
    """uvloop with the clock of :func:`time.monotonic`, by which its timers are set, too."""

    def time(self) -> float:
        """Return the time, s."""
        return time.monotonic()


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end in a loop of its own, as :func:`asyncio.run` does."""
    with asyncio.Runner(loop_factory=DispatchLoop) as runner:
        runner.run(main)
