"""The HTTP client asks a scripted server: what it makes of answers, and of connections that end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tuner.dispatch.backends import http_client
from tuner.dispatch.backends.connection import Lost
from tuner.dispatch.backends.http_client import HttpClient

Script = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
"""What a server does about the path of a question."""


class Server:
    """Carries out a script for each question."""

    def __init__(self, script: Script) -> None:
        self.connections = 0
        self.questions: list[bytes] = []
        self._script = script

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: "))
                self.questions.append(head + await reader.readexactly(int(length.split()[1])))
                await self._script(head.split()[1], writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[HttpClient]:
        """Listen, and have a client."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = HttpClient("127.0.0.1", port, f"127.0.0.1:{port}")
        try:
            yield client
        finally:
            await client.close()
            server.close()


def answer(body: bytes, status: str = "200 OK", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status.encode(), more, len(body), body)


async def echo(path: bytes, writer: asyncio.StreamWriter) -> None:
    """Answer with the path, the later the longer it is."""
    await asyncio.sleep(1e-3 * len(path))
    writer.write(answer(path))


def says(data: bytes, *, ends: bool = False) -> Script:
    """Return a script that sends the same to everybody."""

    async def script(_path: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        if ends:
            writer.close()

    return script


def test_a_connection_is_kept() -> None:
    """One question after the other goes over it, with its headers and its body."""

    async def main() -> None:
        server = Server(echo)
        async with server.asked() as client:
            first = await client.ask("POST", "/a", {"traceparent": "00-1"}, b"body")
            second = await client.ask("GET", "/b")
        assert [first.body, second.body] == [b"/a", b"/b"]
        assert server.connections == 1
        question = server.questions[0]
        assert question.startswith(b"POST /a HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"\r\ntraceparent: 00-1\r\n" in question
        assert question.endswith(b"\r\n\r\nbody")

    asyncio.run(main())


def test_questions_at_a_time_have_connections_of_their_own() -> None:
    """Each gets its own answer, whichever comes first."""

    async def main() -> None:
        server = Server(echo)
        paths = [f"/{'x' * (20 - number)}" for number in range(20)]
        async with server.asked() as client:
            for _ in range(2):
                found = await asyncio.gather(*[client.ask("GET", path) for path in paths])
                assert [one.body.decode() for one in found] == paths
        assert server.connections == 20

    asyncio.run(main())


@pytest.mark.parametrize(
    "data",
    [
        answer(b"right"),
        b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"right"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nri\r\n3\r\nght\r\n0\r\n\r\n",
        answer(b"right", more=b"Connection: close\r\n"),
    ],
)
def test_forms_of_an_answer(data: bytes) -> None:
    """Also if it comes byte by byte."""

    async def slowly(_path: bytes, writer: asyncio.StreamWriter) -> None:
        for byte in data:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    async def main() -> None:
        server = Server(slowly)
        async with server.asked() as client:
            for _ in range(2):
                found = await client.ask("GET", "/")
                assert (found.status, found.body) == (200, b"right")
        assert server.connections == (2 if b"close" in data else 1)

    asyncio.run(main())


def test_what_comes_with_an_answer() -> None:
    """Its status, and its headers by their names in lower case."""

    async def main() -> None:
        data = answer(b"no", "404 Not Found", b"Inference-Header-Content-Length: 7\r\n")
        async with Server(says(data)).asked() as client:
            found = await client.ask("GET", "/")
        assert (found.status, found.body) == (404, b"no")
        assert found.headers[b"inference-header-content-length"] == b"7"

    asyncio.run(main())


@pytest.mark.parametrize(
    "script",
    [
        says(b"", ends=True),
        says(answer(b"right")[:-1], ends=True),
        says(b"HTTP/1.1 200 OK\r\n\r\nuntil the end", ends=True),
        says(b"SSH-2.0-OpenSSH_9.2\r\n"),
        says(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"),
        says(answer(b"x", more=b"Content-Length: 2\r\n")),
    ],
)
def test_no_answer(script: Script) -> None:
    """The connection ends before it is complete, or it is no HTTP; the next question is asked anyway."""

    async def main() -> None:
        server = Server(script)
        async with server.asked() as client:
            for _ in range(2):
                with pytest.raises(Lost, match=client.address):
                    await client.ask("GET", "/")
        assert server.connections == 2

    asyncio.run(main())


def test_nobody_listens() -> None:
    """Who asks hears it at once."""

    async def main() -> None:
        async with Server(echo).asked() as client:
            pass
        fresh = HttpClient("127.0.0.1", int(client.address.rpartition(":")[2]), client.address)
        with pytest.raises(Lost, match=client.address):
            await fresh.ask("GET", "/")

    asyncio.run(main())


def test_an_answer_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read to its end."""
    monkeypatch.setattr(http_client, "LARGEST_ANSWER", 1000)

    async def main() -> None:
        async with Server(says(answer(b"x" * 2000))).asked() as client:
            with pytest.raises(Lost, match="cannot be read"):
                await client.ask("GET", "/")

    asyncio.run(main())


def test_a_server_that_closes_idle_connections() -> None:
    """The next question goes over another one."""

    async def main() -> None:
        server = Server(says(answer(b"right"), ends=True))
        async with server.asked() as client:
            for _ in range(3):
                assert (await client.ask("GET", "/")).body == b"right"
                await asyncio.sleep(0.05)
        assert server.connections == 3

    asyncio.run(main())


@pytest.mark.parametrize(
    ("said", "reset", "within", "comes"),
    [
        (b"", False, 60.0, True),
        (b"", True, 60.0, True),
        (b"HTTP/1.1 2", False, 60.0, False),
        (b"", False, -1.0, False),
    ],
    ids=["closed", "reset", "closed in the middle of an answer", "closed after a while"],
)
def test_a_server_that_closes_a_connection_as_it_is_used(
    said: bytes, reset: bool, within: float, comes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was idle: the question is asked once more, unless the server has been at it."""
    monkeypatch.setattr(http_client, "CLOSED_WITHIN", within)
    used = set[asyncio.StreamWriter]()

    async def once(path: bytes, writer: asyncio.StreamWriter) -> None:
        if writer not in used:
            used.add(writer)
            writer.write(answer(path))
            return
        writer.write(said)
        (writer.transport.abort if reset else writer.close)()

    async def main() -> None:
        server = Server(once)
        async with server.asked() as client:
            await client.ask("GET", "/a")
            if comes:
                assert (await client.ask("POST", "/b", body=b"batch")).body == b"/b"
                assert server.questions[1] == server.questions[2]
            else:
                with pytest.raises(Lost, match="ended"):
                    await client.ask("POST", "/b", body=b"batch")
        assert len(server.questions) == 2 + comes
        assert server.connections == 1 + comes

    asyncio.run(main())


def test_a_server_that_is_gone_is_asked_once_more() -> None:
    """And not for ever."""

    async def never(path: bytes, writer: asyncio.StreamWriter) -> None:
        if path == b"/a":
            writer.write(answer(path))
        else:
            writer.close()

    async def main() -> None:
        server = Server(never)
        async with server.asked() as client:
            await client.ask("GET", "/a")
            with pytest.raises(Lost, match="ended"):
                await client.ask("GET", "/b")
        assert len(server.questions) == 3

    asyncio.run(main())


def test_a_connection_that_was_idle_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not used any more: what stands before the server may have forgotten it."""
    monkeypatch.setattr(http_client, "LONGEST_IDLE", 0.02)

    async def main() -> None:
        server = Server(echo)
        async with server.asked() as client:
            for _ in range(2):
                await client.ask("GET", "/")
                await asyncio.sleep(0.05)
        assert server.connections == 2

    asyncio.run(main())


@pytest.mark.parametrize("extra", [answer(b"wrong"), b"HTTP/1.1 200 OK\r\nContent-Le", b"x"])
def test_more_than_was_asked_for(extra: bytes) -> None:
    """The next question gets its own answer, over another connection."""

    async def twice(path: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(path) + extra)

    async def main() -> None:
        server = Server(twice)
        async with server.asked() as client:
            for path in ("/a", "/b"):
                assert (await client.ask("GET", path)).body.decode() == path
        assert server.connections == 2

    asyncio.run(main())


def test_who_gives_up() -> None:
    """Its answer is not another's."""

    async def main() -> None:
        async with Server(echo).asked() as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await client.ask("GET", "/" + "slow" * 20)
            assert (await client.ask("GET", "/b")).body == b"/b"

    asyncio.run(main())


def test_the_end_of_the_client() -> None:
    """Who waits for an answer hears that there is none."""

    async def main() -> None:
        async with Server(echo).asked() as client:
            waiting = asyncio.ensure_future(client.ask("GET", "/" + "slow" * 100))
            await asyncio.sleep(0.05)
            await client.close()
            with pytest.raises(Lost, match="closed"):
                await waiting
            with pytest.raises(Lost, match="closed"):
                await client.ask("GET", "/")

    asyncio.run(main())


@pytest.mark.parametrize("value", ["a\r\nTransfer-Encoding: chunked", "a\nb", "ä"])
def test_a_header_is_one_line_of_ascii(value: str) -> None:
    """What a caller gave cannot begin another header."""

    async def main() -> None:
        server = Server(echo)
        async with server.asked() as client:
            with pytest.raises(ValueError):  # noqa: PT011 - UnicodeEncodeError is one
                await client.ask("GET", "/", {"tracestate": value})
        assert not server.questions

    asyncio.run(main())
