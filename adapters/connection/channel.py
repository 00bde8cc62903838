"""The gRPC channels over which servers are controlled, and the words of their errors."""

from __future__ import annotations

import re
from typing import Any

from tuner.adapters.connection.credentials import is_loopback
from tuner.adapters.connection.security import Security
from tuner.printable import one_line

__all__ = ["LIVELY", "RECONNECT", "channel_options", "data_options", "direct", "open_channel", "tidy"]

LARGEST_MESSAGE = 16_000_000
"""Bytes. The configuration and the statistics of a model have a few thousand."""
LARGEST_DATA = (1 << 31) - 1
"""Bytes of a request or an answer of a model: what protobuf can hold."""
# A connection ends when nobody has acknowledged for 10 s what was sent on it: a machine that has vanished
# says nothing, and the kernel would go on for 15 minutes. gRPC sets that limit only where keepalive is on.
# Its pings are rare: servers end the connection of a client that sends them more often than every 300 s.
LIVELY = (
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)
# After a restart of the server the channel should find it again within seconds; gRPC may wait two minutes.
RECONNECT = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
# Each layer of gRPC adds that it could not connect, and to which address. Our own message names the address.
CONNECTING = re.compile(
    r"failed to connect to all addresses; last error: ([A-Z_]+: )?(ipv[46]:\S+: )?"
    r"(Failed to connect to remote host: )?"
)


def channel_options(host: str) -> list[tuple[str, int]]:
    """Return the options of a channel over which a host is controlled."""
    return _options(host, LARGEST_MESSAGE)


def data_options(host: str) -> list[tuple[str, int]]:
    """Return the options of a channel over which a host gets requests for its models."""
    return _options(host, LARGEST_DATA)


def _options(host: str, largest: int) -> list[tuple[str, int]]:
    sizes = [("grpc.max_receive_message_length", largest), ("grpc.max_send_message_length", largest)]
    return [*sizes, *RECONNECT, *LIVELY, *direct(host)]


def direct(host: str) -> list[tuple[str, int]]:
    """Return the options by which a host is reached without a proxy, if it is this machine; else none."""
    return [("grpc.enable_http_proxy", 0)] if is_loopback(host) else []


def open_channel(address: str, host: str, security: Security) -> Any:
    """Open a ``grpc.Channel``.

    Raises:
        StorageError: A certificate or token cannot be read.
    """
    import grpc

    credentials = security.channel_credentials()
    if credentials is None:
        return grpc.insecure_channel(address, options=channel_options(host))
    return grpc.secure_channel(address, credentials, options=channel_options(host))


def tidy(text: str) -> str:
    """Return a server's words shortened to one line, without what gRPC adds to them."""
    return CONNECTING.sub("", one_line(text)).rstrip(" ;.")
