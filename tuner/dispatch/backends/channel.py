"""The gRPC channels over which batches go, and what the statuses of servers mean for a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio

from tuner.adapters.connection.channel import data_options, tidy
from tuner.adapters.connection.target import LiveTarget
from tuner.dispatch.backends.connection import Doubtful, Lost
from tuner.dispatch.request import Refused, Status

__all__ = ["answered", "failure", "method", "open_aio", "status_of", "translated"]

REFUSED = {
    grpc.StatusCode.INVALID_ARGUMENT: Status.INVALID,
    grpc.StatusCode.FAILED_PRECONDITION: Status.INVALID,
    grpc.StatusCode.OUT_OF_RANGE: Status.INVALID,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Status.EXHAUSTED,
    grpc.StatusCode.INTERNAL: Status.INTERNAL,
    grpc.StatusCode.UNKNOWN: Status.INTERNAL,
    grpc.StatusCode.DATA_LOSS: Status.INTERNAL,
    grpc.StatusCode.ABORTED: Status.INTERNAL,
    grpc.StatusCode.ALREADY_EXISTS: Status.INTERNAL,
    grpc.StatusCode.DEADLINE_EXCEEDED: Status.DEADLINE,
}
"""Statuses that are about the batch: another server would answer it alike."""
AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""What gRPC says where it cannot reach a server. A server sends them, too: one that ends, one with a full
queue, and one whose model says so."""
DOUBTFUL = {
    **dict.fromkeys(AWAY, Status.UNAVAILABLE),
    grpc.StatusCode.NOT_FOUND: Status.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED: Status.UNSUPPORTED,
    grpc.StatusCode.PERMISSION_DENIED: Status.UNAVAILABLE,
    grpc.StatusCode.UNAUTHENTICATED: Status.UNAVAILABLE,
}
"""Statuses that may be due to the request, to its model, or to the server: it does not serve the model now,
refuses our token, or ends."""
ENDED = (*AWAY, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
"""What gRPC says of a call whose connection has ended."""
CUT_OFF = (
    "RST_STREAM",
    "Received RST_STREAM",
    "Stream removed",
    "Cancelling all calls",
    "Socket closed",
    "Transport closed",
    "GOAWAY",
    "Connection reset",
    "recvmsg:",
    "sendmsg:",
)
"""How gRPC begins to speak of a connection that ended in the middle of an answer. Elsewhere in a server's
words they mean nothing: it repeats what a request calls its inputs."""


def open_aio(target: LiveTarget) -> Any:
    """Open a ``grpc.aio.Channel`` for batches.

    Raises:
        StorageError: A certificate or token cannot be read.
    """
    options = data_options(target.host)
    credentials = target.security.channel_credentials()
    if credentials is None:
        return grpc.aio.insecure_channel(target.address, options=options)
    return grpc.aio.secure_channel(target.address, credentials, options=options)


class Unreached(grpc.RpcError):  # type: ignore[misc]  # grpc has no types
    """No server sent the status of a call: there is no connection to it."""


def method(channel: Any, path: str, question: Any, answer: Any) -> Any:
    """Return a method of the server behind a channel.

    It raises what gRPC does, and :class:`Unreached` for what gRPC itself says of a server that is away.

    Args:
        channel: As :func:`open_aio` returns it.
        path: Of the method.
        question: The class of what is sent.
        answer: The class of what comes back.
    """
    call = channel.unary_unary(
        path, request_serializer=question.SerializeToString, response_deserializer=answer.FromString
    )

    async def asked(sent: Any, **options: Any) -> Any:
        try:
            return await call(sent, **options)
        except grpc.RpcError as error:
            # A status that was sent has come over a connection, which is there.
            if error.code() in AWAY and channel.get_state() is not grpc.ChannelConnectivity.READY:
                raise Unreached(tidy(error.details() or "") or error.code().name) from error
            raise

    return asked


@contextmanager
def translated(address: str) -> Iterator[None]:
    """Turn what gRPC raises inside the block into what :func:`failure` makes of it.

    Raises:
        Lost: There is no answer; the channel may have been closed.
        Refused: The server refuses the call.
    """
    try:
        yield
    except Unreached as error:
        raise Lost(f"{address}: {error}") from error
    except grpc.RpcError as error:
        raise failure(error.code(), tidy(error.details() or ""), address) from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # gRPC cancels the calls of a channel that is closed, and not the tasks that wait for them.
        raise Lost(f"{address}: the connection was closed") from None


@contextmanager
def answered(address: str) -> Iterator[None]:
    """Turn what gRPC raises inside the block into `Lost`: what is asked there has no fault of its own."""
    try:
        with translated(address):
            yield
    except Refused as refused:
        raise Lost(refused.reason) from refused


def failure(code: grpc.StatusCode, words: str, address: str) -> Lost | Refused:
    """Return what a status of gRPC means for a batch, and for the server.

    Args:
        code: The status; not OK.
        words: Its details, on one line.
        address: The server's address, for the message.
    """
    said = f"{address}: {words or code.name}"
    if code in ENDED and words.startswith(CUT_OFF):
        return Lost(said)
    return (Doubtful if code in DOUBTFUL else Refused)(status_of(code), said)


def status_of(code: grpc.StatusCode) -> Status:
    """Return what a status of gRPC, other than OK, means for a batch that its server has refused."""
    return DOUBTFUL[code] if code in DOUBTFUL else REFUSED[code]
