"""What the statuses of servers, and the end of a channel, mean for a batch, and for the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.dispatch.fakes import request
from tuner.dispatch.backends.catalogue import connect
from tuner.dispatch.backends.channel import failure
from tuner.dispatch.backends.connection import Connection, Doubtful, Lost
from tuner.dispatch.request import Refused, Status

Code = grpc.StatusCode
MEANINGS: dict[grpc.StatusCode, tuple[type[Exception], Status | None]] = {
    Code.CANCELLED: (Doubtful, Status.UNAVAILABLE),
    Code.UNAVAILABLE: (Doubtful, Status.UNAVAILABLE),
    Code.NOT_FOUND: (Doubtful, Status.NOT_FOUND),
    Code.UNIMPLEMENTED: (Doubtful, Status.UNSUPPORTED),
    Code.PERMISSION_DENIED: (Doubtful, Status.UNAVAILABLE),
    Code.UNAUTHENTICATED: (Doubtful, Status.UNAVAILABLE),
    Code.INVALID_ARGUMENT: (Refused, Status.INVALID),
    Code.FAILED_PRECONDITION: (Refused, Status.INVALID),
    Code.OUT_OF_RANGE: (Refused, Status.INVALID),
    Code.RESOURCE_EXHAUSTED: (Refused, Status.EXHAUSTED),
    Code.DEADLINE_EXCEEDED: (Refused, Status.DEADLINE),
    Code.INTERNAL: (Refused, Status.INTERNAL),
    Code.UNKNOWN: (Refused, Status.INTERNAL),
    Code.DATA_LOSS: (Refused, Status.INTERNAL),
    Code.ABORTED: (Refused, Status.INTERNAL),
    Code.ALREADY_EXISTS: (Refused, Status.INTERNAL),
}


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK])
@pytest.mark.parametrize("words", ["", "no", "unexpected inference input 'GOAWAY' Socket closed"])
def test_every_status_has_a_meaning(code: grpc.StatusCode, words: str) -> None:
    """Whatever the server repeats of the request."""
    found = failure(code, words, "a:1")

    assert (type(found), getattr(found, "status", None)) == MEANINGS[code]
    assert str(found) == f"a:1: {words or code.name}"


@pytest.mark.parametrize("words", ["Received RST_STREAM with error code 2", "Stream removed (Socket closed)"])
def test_a_connection_that_was_cut_off(words: str) -> None:
    """gRPC says so by one of four statuses; with another one the words are a server's."""
    ends = (Code.INTERNAL, Code.UNKNOWN, Code.UNAVAILABLE, Code.CANCELLED)

    assert [type(failure(code, words, "a:1")) for code in ends] == [Lost] * 4
    assert type(failure(Code.INVALID_ARGUMENT, words, "a:1")) is Refused


class Silent(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Takes every call and answers none."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def service(self, _details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._wait)

    async def _wait(self, _request: bytes, _context: Any) -> None:
        self.asked.set()
        await asyncio.Event().wait()


def ask(connection: Connection, question: str) -> asyncio.Task[object]:
    """Ask for metadata, or send a batch."""
    like = request()
    call = (
        connection.metadata("m", 5.0) if question == "metadata" else connection.infer("m", like, like.inputs)
    )
    return asyncio.ensure_future(call)


@asynccontextmanager
async def connected(scheme: str, handler: Any) -> AsyncIterator[tuple[Connection, Any]]:
    """Return a connection to a server, and the server."""
    server = grpc.aio.server(handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    connection = connect([f"{scheme}://127.0.0.1:{port}/m"])
    try:
        yield connection, server
    finally:
        await connection.close()
        await server.stop(None)


class Unwilling(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Ends every call with a status."""

    def __init__(self, code: grpc.StatusCode, words: str) -> None:
        self._code = code
        self._words = words

    def service(self, _details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._end)

    async def _end(self, _request: bytes, context: Any) -> None:
        await context.abort(self._code, self._words)


@pytest.mark.parametrize("scheme", ["triton", "tfserving"])
@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.CANCELLED])
@pytest.mark.parametrize(
    "words",
    [
        "",
        "Exceeds maximum queue size",
        "Request for unknown model: 'm' version 1 is not at ready state",
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:1: Connection refused",
    ],
)
def test_what_a_server_sends_is_no_loss_of_it(scheme: str, code: grpc.StatusCode, words: str) -> None:
    """A model may say that it is not available, also because another server is not that it needs."""

    async def main() -> None:
        async with connected(scheme, Unwilling(code, words)) as (connection, _):
            with pytest.raises(Doubtful) as doubtful:
                await ask(connection, "infer")
            assert doubtful.value.status is Status.UNAVAILABLE
            with pytest.raises(Lost):  # what is asked there has no fault of its own
                await ask(connection, "metadata")
            assert not await connection.ready("m", 5.0)

    asyncio.run(main())


@pytest.mark.parametrize("scheme", ["triton", "tfserving"])
def test_a_server_that_is_away_is_lost(scheme: str) -> None:
    """From the moment at which it goes; gRPC gives the statuses itself then."""

    async def main() -> None:
        silent = Silent()
        async with connected(scheme, silent) as (connection, server):
            call = ask(connection, "infer")
            await silent.asked.wait()
            await server.stop(None)
            with pytest.raises(Lost):
                await call
            with pytest.raises(Lost, match="Connection refused"):
                await ask(connection, "infer")

    asyncio.run(main())


@pytest.mark.parametrize("scheme", ["triton", "tfserving"])
@pytest.mark.parametrize("question", ["metadata", "infer"])
def test_a_connection_that_is_closed_answers_nothing(scheme: str, question: str) -> None:
    """Who waits for its answer hears that the server is lost; who is cancelled stays cancelled."""

    async def main() -> None:
        silent = Silent()
        server = grpc.aio.server(handlers=[silent])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        connection = connect([f"{scheme}://127.0.0.1:{port}/m"])
        ours = ask(connection, question)
        await silent.asked.wait()
        ours.cancel()
        silent.asked.clear()
        call = ask(connection, question)
        await silent.asked.wait()
        await connection.close()
        cancelled, lost = await asyncio.gather(ours, call, return_exceptions=True)
        await server.stop(None)
        assert isinstance(cancelled, asyncio.CancelledError)
        assert isinstance(lost, Lost)
        assert str(lost) == f"127.0.0.1:{port}: the connection was closed"

    asyncio.run(main())
