"""Frontends and servers of ``mode: grants`` that exist only in the loop's time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tests.dispatch.fakes import MS, FakeServer, request
from tests.dispatch.front.echo import Echo
from tuner.dispatch.client import AsyncGrantClient
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.front.conversation import Conversation
from tuner.dispatch.front.intake import Intake


@dataclass
class Pipe:
    """A line to a dispatcher in the same loop; a frame takes a while."""

    dispatcher: Dispatcher | Echo
    delay: float = 0.2 * MS
    there: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    back: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        conversation = Conversation(Intake(self.dispatcher, 2000, self.dispatcher))
        self.talk = asyncio.ensure_future(self._run(conversation))

    async def _run(self, conversation: Conversation) -> None:
        try:
            await conversation.run(self.there.get, self._answer)
        finally:
            self.back.put_nowait(None)

    async def _answer(self, frame: bytes) -> None:
        await asyncio.sleep(self.delay)
        self.back.put_nowait(frame)

    async def write(self, frame: bytes) -> None:
        await asyncio.sleep(self.delay)
        self.there.put_nowait(frame)

    async def read(self) -> bytes | None:
        return await self.back.get()

    async def finish(self) -> None:
        await asyncio.sleep(self.delay)
        self.there.put_nowait(None)

    async def close(self) -> None:
        self.there.put_nowait(None)
        await self.talk


@dataclass
class Batcher:
    """The dynamic batching of a server: what comes within its delay of the first request is one batch."""

    server: FakeServer
    delay: float = 1 * MS
    _items: int = 0
    _batch: asyncio.Task[None] | None = None

    async def ask(self, items: int) -> None:
        self._items += items
        if self._batch is None:
            self._batch = asyncio.ensure_future(self._execute())
        await asyncio.shield(self._batch)

    async def _execute(self) -> None:
        await asyncio.sleep(self.delay)
        items, self._items, self._batch = self._items, 0, None
        await self.server.infer("m", request(), request(items=items).inputs)


def frontend(dispatcher: Dispatcher) -> AsyncGrantClient:
    return AsyncGrantClient("nowhere", open_line=lambda: Pipe(dispatcher))
