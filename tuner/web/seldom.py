"""Keeps strangers from filling the daemon's log through the libraries of its web server.

They log a line for each request that is no HTTP, and a traceback for each that they cannot answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

__all__ = ["Seldom", "log_seldom"]

MOST_MESSAGES = 10
"""Messages in a minute."""
MINUTE = 60.0
NAMES = ("uvicorn", "uvicorn.error", "uvicorn.asgi", "asyncio")


class Seldom(logging.Filter):
    """Lets a few messages of a logger pass in a minute, and then says how many it left out.

    Args:
        now: Returns seconds on a clock that never goes back.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._begun = now()
        self._passed = self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a message is logged."""
        if self._now() - self._begun >= MINUTE:
            if self._left_out:
                record.msg = f"{record.getMessage()} (before it {self._left_out} messages were left out)"
                record.args = ()
            self._begun, self._passed, self._left_out = self._now(), 0, 0
        if self._passed >= MOST_MESSAGES:
            self._left_out += 1
            return False
        self._passed += 1
        return True


def log_seldom() -> None:
    """Limit the loggers of the web server's libraries; once is enough."""
    for logger in map(logging.getLogger, NAMES):
        if not any(isinstance(one, Seldom) for one in logger.filters):
            logger.addFilter(Seldom())
