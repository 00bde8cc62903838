"""Messages that wait to be written: what is said at once travels in few frames."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from tuner.dispatch.request import Refused, Status

__all__ = ["LONGEST_FRAME", "Outbox", "Write"]

FULL_FRAME = 65_536
"""Bytes at which a frame ends, and another one begins."""
LONGEST_FRAME = 262_144
"""Bytes of a frame that the dispatcher takes."""
LONGEST_MESSAGE = LONGEST_FRAME - len("[]")
"""Bytes."""
Write = Callable[[bytes], Awaitable[None]]
"""Sends a frame."""


class Outbox:
    """Collects messages while a frame is being written."""

    def __init__(self) -> None:
        self._unsaid: deque[str] = deque()
        self._news = asyncio.Event()
        self._ending = False

    def __len__(self) -> int:
        return len(self._unsaid)

    def say(self, **message: Any) -> None:
        """Write a message soon.

        Raises:
            Refused: It is longer than the dispatcher takes.
            TypeError: JSON cannot say it.
        """
        text = json.dumps(message)
        if len(text) > LONGEST_MESSAGE:
            raise Refused(Status.INVALID, f"a message has at most {LONGEST_MESSAGE} bytes, not {len(text)}")
        self._unsaid.append(text)
        self._news.set()

    def end(self) -> None:
        """Let :meth:`run` end once everything is written."""
        self._ending = True
        self._news.set()

    async def run(self, write: Write) -> None:
        """Write until the end, or until writing fails."""
        while self._unsaid or not self._ending:
            await self._news.wait()
            self._news.clear()
            while self._unsaid:
                await write(self._frame())

    def _frame(self) -> bytes:
        """Take the next messages, as many as fill a frame."""
        said = [self._unsaid.popleft()]
        size = len(said[0])
        while self._unsaid and size + len(self._unsaid[0]) < FULL_FRAME:
            said.append(self._unsaid.popleft())
            size += len(said[-1]) + 1
        return f"[{','.join(said)}]".encode()
