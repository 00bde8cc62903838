"""Messages that wait to be written: what is said at once travels in one frame."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["Outbox", "Write"]

Write = Callable[[bytes], Awaitable[None]]
"""Sends a frame."""


class Outbox:
    """Collects messages while a frame is being written."""

    def __init__(self) -> None:
        self._unsaid: list[dict[str, Any]] = []
        self._news = asyncio.Event()
        self._ending = False

    def __len__(self) -> int:
        return len(self._unsaid)

    def say(self, **message: Any) -> None:
        """Write a message soon."""
        self._unsaid.append(message)
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
            said, self._unsaid = self._unsaid, []
            if said:
                await write(json.dumps(said).encode())
