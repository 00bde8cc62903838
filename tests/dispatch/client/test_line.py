"""The line to the dispatcher over gRPC."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tests.dispatch.front.echo import Echo, running
from tuner.dispatch.client import line as module
from tuner.dispatch.client.line import GrpcLine
from tuner.dispatch.front import FrontConfig, grpc_server
from tuner.dispatch.request import Refused, Status

SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The frame with which a server of HTTP/2 begins, without any settings."""


def test_a_write_after_the_end() -> None:
    """It hears why the dispatcher ended the conversation, as reading does."""

    async def main(address: str) -> None:
        line = GrpcLine(address, None, None)
        await line.write(b"nonsense")
        for attempt in (line.read(), line.write(b"[]")):
            with pytest.raises(Refused, match="JSON array") as refused:
                await attempt
            assert refused.value.status is Status.INVALID
        await line.close()

    with running(Echo(), FrontConfig(grpc=("127.0.0.1", 0))) as fronts:
        assert fronts.grpc_address is not None
        asyncio.run(main("{}:{}".format(*fronts.grpc_address)))


def test_a_dispatcher_that_is_off_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads hears after a while that it is away, though the connection never ended."""
    monkeypatch.setattr(module, "ASK_AFTER", 0.1)
    monkeypatch.setattr(module, "ANSWERS_WITHIN", 0.1)

    talking: set[asyncio.StreamWriter] = set()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talking.add(writer)
        with suppress(ConnectionError):
            writer.write(SETTINGS)
            while await reader.read(1_000):
                pass
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        talking.discard(writer)

    async def main() -> None:
        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            line = GrpcLine("{}:{}".format(*server.sockets[0].getsockname()), None, None)
            with pytest.raises(Refused) as refused:
                await line.read()
            await line.close()
            async with asyncio.timeout(60):
                while talking:  # a connection that is not closed would warn in a later test
                    await asyncio.sleep(0.01)
        assert refused.value.status is Status.UNAVAILABLE, refused.value

    asyncio.run(main())


def test_how_often_the_dispatcher_is_asked() -> None:
    """No more often than its server permits, which would end the conversation."""
    permitted = dict(grpc_server._options(1))["grpc.http2.min_ping_interval_without_data_ms"]
    assert dict(module._options())["grpc.keepalive_time_ms"] > permitted


def test_how_soon_a_dispatcher_that_was_down_is_found_again() -> None:
    """gRPC itself would wait for up to two minutes."""
    assert dict(module._options())["grpc.max_reconnect_backoff_ms"] <= 1000
