"""The line to the dispatcher over gRPC."""

from __future__ import annotations

import asyncio

import pytest

from tests.dispatch.front.echo import Echo, running
from tuner.dispatch.client.line import GrpcLine
from tuner.dispatch.front import FrontConfig
from tuner.dispatch.request import Refused, Status


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
