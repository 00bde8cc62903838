"""A TCP proxy that can hang, cut connections or answer nonsense: a bad network in front of a good server.

======  ==========================================================================================
mode    what happens to connections, new ones and those that are open
======  ==========================================================================================
PASS    bytes go through in both directions
HANG    they stay open, and nothing goes through until the mode changes; then what has waited does
CUT     they are reset
SPEAK   each gets the bytes of ``answer`` after its first request, and is closed
DRIP    each gets them, and then those of ``more`` one by one, without end
======  ==========================================================================================
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from enum import Enum
from types import TracebackType

__all__ = ["Mode", "Proxy"]

HOST = "127.0.0.1"
CHUNK = 65536
BETWEEN_DROPS = 0.1
"""s."""


class Mode(Enum):
    """What the proxy does; see the table in the module docstring."""

    PASS = "pass"
    HANG = "hang"
    CUT = "cut"
    SPEAK = "speak"
    DRIP = "drip"


class Proxy:
    """Stands in front of a port of this machine, in a thread of its own, for the length of a block.

    Args:
        upstream: The port of the server.
    """

    def __init__(self, upstream: int) -> None:
        self.port = 0
        """Where it listens."""
        self.answer = b""
        """What it says in the modes SPEAK and DRIP."""
        self.more = b""
        """What it goes on with in mode DRIP."""
        self._upstream = upstream
        self._mode = Mode.PASS
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def mode(self) -> Mode:
        """What it does; assign to change it, from any thread."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        asyncio.run_coroutine_threadsafe(self._switch(mode), self._loop).result(10)

    def speak(self, answer: bytes) -> None:
        """Say this instead of what the server would."""
        self.answer = answer
        self.mode = Mode.SPEAK

    def drip(self, answer: bytes, more: bytes) -> None:
        """Begin with an answer instead of what the server would say, and never come to its end."""
        self.answer, self.more = answer, more
        self.mode = Mode.DRIP

    async def _listen(self) -> asyncio.Server:
        self._flowing.set()
        return await asyncio.start_server(self._serve, HOST, 0)

    async def _switch(self, mode: Mode) -> None:
        self._mode = mode
        if mode is Mode.HANG:
            self._flowing.clear()
            return
        self._flowing.set()
        if mode is not Mode.PASS:  # what is open would otherwise go on as before
            self._reset()

    async def _end(self) -> None:
        self._server.close()
        self._reset()
        others = asyncio.all_tasks(self._loop) - {asyncio.current_task(self._loop)}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _reset(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            if self._mode is Mode.CUT:
                return
            if self._mode is Mode.SPEAK:
                await reader.read(CHUNK)
                writer.write(self.answer)
                await writer.drain()
                return
            if self._mode is Mode.DRIP:
                await reader.read(CHUNK)
                await self._drip(writer)
                return
            await self._connect(reader, writer)
        except OSError:
            pass  # one of both ends is gone
        finally:
            self._open.discard(writer)
            if self._mode is Mode.CUT:
                writer.transport.abort()
            writer.close()

    async def _drip(self, writer: asyncio.StreamWriter) -> None:
        writer.write(self.answer)
        for byte in itertools.cycle(self.more):
            if self._mode is not Mode.DRIP:
                return
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(BETWEEN_DROPS)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass everything on between a client and the server until one of them closes."""
        await self._flowing.wait()
        above, below = await asyncio.open_connection(HOST, self._upstream)
        self._open.add(below)
        try:
            both = (self._pump(reader, below), self._pump(above, writer))
            await asyncio.wait([asyncio.ensure_future(one) for one in both], return_when="FIRST_COMPLETED")
        finally:
            self._open.discard(below)
            below.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(CHUNK):
                await self._flowing.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass  # reset: the other direction ends with it
