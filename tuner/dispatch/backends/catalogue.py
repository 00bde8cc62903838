"""Opens the connection to a server from the target of one of its models."""

from __future__ import annotations

from tuner.adapters.registry import scheme_of
from tuner.adapters.triton.target import TritonTarget, parse_target
from tuner.dispatch.backends.connection import Connection
from tuner.errors import InvalidInput

__all__ = ["connect", "parse_backend"]


def parse_backend(text: str) -> TritonTarget:
    """Read the target of a backend.

    Raises:
        InvalidInput: It is malformed, or batches cannot be sent to such a server.
    """
    scheme = scheme_of(text)
    if scheme != "triton":
        raise InvalidInput("TARGET", f"batches cannot be sent to {scheme}://", "use triton://HOST:8001/MODEL")
    return parse_target(text)


def connect(text: str) -> Connection:
    """Open the connection to the server of a target.

    Raises:
        InvalidInput: The target is malformed, or batches cannot be sent to such a server.
        StorageError: A certificate or token cannot be read.
    """
    from tuner.dispatch.backends.triton import TritonConnection

    return TritonConnection(parse_backend(text))
