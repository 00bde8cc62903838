"""The gRPC channels over which batches go, and what the statuses of servers mean for a batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio

from tuner.adapters.connection.channel import channel_options, tidy
from tuner.adapters.connection.target import LiveTarget
from tuner.dispatch.backends.connection import Lost
from tuner.dispatch.request import Refused, Status

__all__ = ["open_aio", "translated"]

LARGEST_MESSAGE = (1 << 31) - 1
"""Bytes of a batch or its answer: what protobuf can hold."""
ABOUT_THE_BATCH = {
    grpc.StatusCode.INVALID_ARGUMENT: Status.INVALID,
    grpc.StatusCode.FAILED_PRECONDITION: Status.INVALID,
    grpc.StatusCode.OUT_OF_RANGE: Status.INVALID,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Status.EXHAUSTED,
    grpc.StatusCode.INTERNAL: Status.INTERNAL,
    grpc.StatusCode.UNKNOWN: Status.INTERNAL,
    grpc.StatusCode.DATA_LOSS: Status.INTERNAL,
    grpc.StatusCode.ABORTED: Status.INTERNAL,
    grpc.StatusCode.DEADLINE_EXCEEDED: Status.DEADLINE,
}
"""The statuses that another server would give, too; after any other one it is worth asking."""
CUT_OFF = ("RST_STREAM", "Stream removed", "Socket closed", "GOAWAY", "Connection reset")
"""Words of gRPC for a connection that ended in the middle of an answer."""


def open_aio(target: LiveTarget) -> Any:
    """Open a ``grpc.aio.Channel`` for batches.

    Raises:
        StorageError: A certificate or token cannot be read.
    """
    options = [option for option in channel_options(target.host) if "message_length" not in option[0]]
    options += [
        ("grpc.max_receive_message_length", LARGEST_MESSAGE),
        ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ]
    credentials = target.security.channel_credentials()
    if credentials is None:
        return grpc.aio.insecure_channel(target.address, options=options)
    return grpc.aio.secure_channel(target.address, credentials, options=options)


@contextmanager
def translated(address: str) -> Iterator[None]:
    """Turn what gRPC raises inside the block into `Lost` or `Refused`."""
    try:
        yield
    except grpc.RpcError as error:
        words = tidy(error.details() or "")
        status = ABOUT_THE_BATCH.get(error.code())
        if status is None or any(part in words for part in CUT_OFF):
            raise Lost(f"{address}: {words or error.code().name}") from error
        raise Refused(status, f"{address}: {words or error.code().name}") from error
