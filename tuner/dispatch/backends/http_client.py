"""A server over HTTP/1.1: connections that are kept, each with one question at a time.

It is written on asyncio's transports and httptools' parser, for it costs a small request 0.2 ms of a core:
aiohttp and pyreqwest cost 0.4, gRPC for Python 0.5.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, cast

import httptools

from tuner.dispatch.backends.connection import Lost

__all__ = ["HttpAnswer", "HttpClient"]

LARGEST_ANSWER = (1 << 31) - 1
"""Bytes of an answer with its headers: what gRPC takes."""
LONGEST_IDLE = 10.0
"""s after which a connection is not used again: servers, and what stands before them, close idle ones."""
CLOSED_WITHIN = 1.0
"""s after a question within which a connection ends that the server had closed already; where it ends later,
the server has worked on the question."""
ANNOUNCED = range(100, 200)
"""Statuses after which the answer is still to come."""


class HttpAnswer(NamedTuple):
    """What a server answers."""

    status: int
    headers: Mapping[bytes, bytes]
    """By their names in lower case."""
    body: bytes


class HttpClient:
    """Asks one server; one event loop's.

    Args:
        host: Its name or address.
        port: Its HTTP port.
        address: Both, for messages and for the header ``Host``.
    """

    def __init__(self, host: str, port: int, address: str) -> None:
        self.address = address
        self._host, self._port = host, port
        self._lines: set[_Line] = set()
        self._idle: deque[_Line] = deque()  # the latest is used first
        self._closed = False

    async def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> HttpAnswer:
        """Ask a question and wait for its answer, as long as that takes.

        One that is asked over a connection of earlier questions, which soon ends without a byte of an answer,
        is asked once more over a new one.

        Args:
            method: Such as ``POST``.
            path: Quoted.
            headers: Besides the host and the length of the body, in ASCII.
            body: In bytes; may be empty.

        Raises:
            Lost: There is no answer.
            ValueError: A header would be more than one.
        """
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.address}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header has several lines")
        question = "\r\n".join([*lines, "", ""]).encode("ascii") + body
        if (kept := self._kept()) is not None:
            loop = asyncio.get_running_loop()
            latest = loop.time() + CLOSED_WITHIN
            try:
                return await self._asked(kept, question)
            except Lost:
                # The server may have closed the connection, which was idle, before the question came there.
                if kept.heard or self._closed or loop.time() > latest:
                    raise
        return await self._asked(await self._connect(), question)

    async def _asked(self, line: _Line, question: bytes) -> HttpAnswer:
        """Ask over a connection, and keep it for the next question if that goes well.

        Raises:
            Lost: There is no answer.
        """
        answer = line.ask(question)
        try:
            found = await answer
        except asyncio.CancelledError:
            line.close()  # its answer is still to come
            raise
        if line.reusable and not self._closed:
            line.since = asyncio.get_running_loop().time()
            self._idle.append(line)
        else:
            line.close()
        return found

    def _kept(self) -> _Line | None:
        """Return a connection that was used already and is open, None if there is none."""
        oldest = asyncio.get_running_loop().time() - LONGEST_IDLE
        while self._idle and self._idle[0].since < oldest:
            self._idle.popleft().close()
        while self._idle:
            line = self._idle.pop()
            if line.reusable:
                return line
        return None

    async def _connect(self) -> _Line:
        loop = asyncio.get_running_loop()
        try:
            _, line = await loop.create_connection(self._make_line, self._host, self._port)
        except OSError as error:
            raise Lost(f"{self.address}: {error.strerror or error}") from error
        if self._closed:
            line.close()
            raise Lost(f"{self.address}: the connection was closed")
        return line

    def _make_line(self) -> _Line:
        line = _Line(self.address, self._lines)
        self._lines.add(line)
        return line

    async def close(self) -> None:
        """Close all connections; who waits for an answer gets `Lost`."""
        self._closed = True
        for line in list(self._lines):
            line.close()


class _Line(asyncio.Protocol):
    """A connection.

    Args:
        address: Of the server, for messages.
        lines: All that are open; it leaves them when it ends.
    """

    def __init__(self, address: str, lines: set[_Line]) -> None:
        self.since = 0.0
        """When it was used last, s."""
        self._address = address
        self._lines = lines
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        self._size = 0
        self._reusable = True

    @property
    def reusable(self) -> bool:
        """Whether another question can be asked."""
        return self._reusable and self._transport is not None and not self._transport.is_closing()

    @property
    def heard(self) -> bool:
        """Whether a byte came after the last question."""
        return self._size > 0

    def ask(self, question: bytes) -> asyncio.Future[HttpAnswer]:
        """Send a question, and return what waits for its answer."""
        answer = self._answer = asyncio.get_running_loop().create_future()
        self._size = 0
        if self._transport is None or self._transport.is_closing():
            self._fail("the connection was closed")
        else:
            self._transport.write(question)
        return answer

    def close(self) -> None:
        """End; who waits for an answer gets `Lost`."""
        self._fail("the connection was closed")
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, why: str) -> None:
        """Give no answer, and no other after it."""
        self._reusable = False
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(Lost(f"{self._address}: {why}"))

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one, but does not say so

    def data_received(self, data: bytes) -> None:
        """Read a piece of an answer."""
        self._size += len(data)
        try:
            if self._answer is None or self._size > LARGEST_ANSWER:
                raise httptools.HttpParserError("it sends what was not asked for")
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"its answer cannot be read: {error}")
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        """End: the server has closed the connection, or we have."""
        self._lines.discard(self)
        self._fail(f"the connection ended{f': {error}' if error else ''}")

    # What httptools calls.

    def on_message_begin(self) -> None:
        """Begin with an answer."""
        self._headers, self._parts = {}, []
        if self._answer is None:  # a second one to the same question
            self._reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        self._headers[name.lower()] = value

    def on_body(self, part: bytes) -> None:
        """Keep a piece of the body."""
        self._parts.append(part)

    def on_message_complete(self) -> None:
        """Give the answer."""
        status = self._parser.get_status_code()
        if status in ANNOUNCED:
            return
        self._reusable = self._reusable and self._parser.should_keep_alive()
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(HttpAnswer(status, self._headers, b"".join(self._parts)))
