"""The line to the dispatcher: frames of bytes in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import grpc
import grpc.aio

from tuner.adapters.connection.address import host_of
from tuner.adapters.connection.channel import RECONNECT, direct
from tuner.dispatch.grant import CONVERSE, WELCOME
from tuner.dispatch.request import Refused, Status

__all__ = ["GrpcLine", "Line", "OpenLine"]

STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: Status.INVALID,
    grpc.StatusCode.UNAUTHENTICATED: Status.INVALID,
    grpc.StatusCode.UNIMPLEMENTED: Status.UNSUPPORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Status.EXHAUSTED,
}
"""What the end of a conversation means; any other one means that the dispatcher is away."""
ASK_AFTER = 10.0
"""Silence, s, after which the dispatcher is asked whether it is there; it permits no less than 5."""
ANSWERS_WITHIN = 10.0
"""Time for its answer, s; then it is away."""


class Line(Protocol):
    """A conversation with the dispatcher."""

    async def read(self) -> bytes | None:
        """Wait for the next frame; None at the end.

        Raises:
            Refused: The conversation broke.
        """
        ...

    async def write(self, frame: bytes) -> None:
        """Send a frame.

        Raises:
            Refused: The conversation broke.
        """
        ...

    async def finish(self) -> None:
        """Say that nothing more will be written; the dispatcher ends the conversation then.

        Raises:
            Refused: The conversation broke.
        """
        ...

    async def close(self) -> None:
        """End the conversation."""
        ...


OpenLine = Callable[[], Line]


class GrpcLine:
    """A line over gRPC.

    Args:
        address: Of the dispatcher's gRPC, as ``host:port``.
        token: That it asks for.
        credentials: For TLS; in the clear if None.
    """

    def __init__(self, address: str, token: str | None, credentials: Any) -> None:
        options = [*_options(), *direct(host_of(address))]
        self._channel = (
            grpc.aio.insecure_channel(address, options=options)
            if credentials is None
            else grpc.aio.secure_channel(address, credentials, options=options)
        )
        metadata = [("authorization", f"Bearer {token}")] if token is not None else None
        self._call = self._channel.stream_stream(CONVERSE)(metadata=metadata)
        self._welcome = False

    async def read(self) -> bytes | None:
        """See :class:`Line`."""
        try:
            frame = await self._call.read()
        except grpc.RpcError as error:
            raise _refused(error) from None
        return None if frame is grpc.aio.EOF else bytes(frame)

    async def write(self, frame: bytes) -> None:
        """See :class:`Line`."""
        try:
            if not self._welcome:  # a write that meets the refusal of the call would hide its reason
                self._welcome = WELCOME in dict(await self._call.initial_metadata())
            if not self._welcome:
                raise await self._over()
            await self._call.write(frame)
        except grpc.RpcError as error:
            raise _refused(error) from None
        except asyncio.InvalidStateError:
            raise await self._over() from None

    async def finish(self) -> None:
        """See :class:`Line`."""
        try:
            await self._call.done_writing()
        except grpc.RpcError as error:
            raise _refused(error) from None

    async def _over(self) -> Refused:
        """Return why the call has ended."""
        code = await self._call.code()
        return Refused(_status(code), await self._call.details() or code.name)

    async def close(self) -> None:
        """See :class:`Line`."""
        self._call.cancel()
        await self._channel.close()


def _options() -> list[tuple[str, int]]:
    return [
        ("grpc.keepalive_time_ms", int(ASK_AFTER * 1000)),
        ("grpc.keepalive_timeout_ms", int(ANSWERS_WITHIN * 1000)),
        ("grpc.http2.ping_timeout_ms", int(ANSWERS_WITHIN * 1000)),  # gRPC 1.85 heeds this one only
        ("grpc.http2.max_pings_without_data", 0),  # as many as it takes
        *RECONNECT,
    ]


def _refused(error: grpc.RpcError) -> Refused:
    return Refused(_status(error.code()), error.details() or error.code().name)


def _status(code: grpc.StatusCode) -> Status:
    return STATUSES.get(code, Status.UNAVAILABLE)
