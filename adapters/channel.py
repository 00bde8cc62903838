"""Options of the gRPC channels over which servers are controlled."""

from __future__ import annotations

__all__ = ["channel_options", "tidy"]

LARGEST_MESSAGE = 64 * 1024 * 1024
# After a restart of the server the channel must find it again within seconds, not gRPC's two minutes.
CHANNEL = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


def channel_options(host: str) -> list[tuple[str, int]]:
    """Return the options for a channel to a host; a proxy is never asked for this machine."""
    loopback = host in ("localhost", "127.0.0.1", "::1")
    return [*CHANNEL, *([("grpc.enable_http_proxy", 0)] if loopback else [])]


def tidy(text: str) -> str:
    """Return a server's words on one line, not too many of them."""
    return " ".join(text.split())[:500].rstrip(" ;.")
