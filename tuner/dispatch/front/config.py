"""Where the fronts listen, and what they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tuner.adapters.connection.identity import Identity
from tuner.errors import InvalidInput

__all__ = ["Address", "FrontConfig", "GrpcServer"]

LARGEST_MESSAGE = 16_000_000
"""Bytes of a request, and of an answer, unless it is set otherwise."""
MOST_REQUESTS = 2_000
"""Inferences in progress, likewise."""
Address = tuple[str, int]
"""A host and a port; port 0 stands for any that is free."""
GrpcServer = Literal["grpcio", "native"]
"""What speaks gRPC: gRPC's own server, or one in Rust that costs less and protects less."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FrontConfig:
    """Where the fronts listen, and what they take."""

    grpc: Address | None = None
    """Where KServe's and TensorFlow Serving's gRPC are spoken; nowhere if None."""
    http: Address | None = None
    """Where KServe's HTTP is spoken; nowhere if None."""
    grpc_server: GrpcServer = "grpcio"
    """What speaks it; ``native`` has no TLS."""
    identity: Identity | None = None
    """The server's certificate, and who must have certified clients, if somebody must; in the clear if None.
    :meth:`.Fronts.renew` replaces it, and the token."""
    token: str | None = None
    """The bearer token that every request needs, but for those that ask whether the server is ready."""
    largest_message: int = LARGEST_MESSAGE
    """Bytes of a request, and of an answer."""
    most_requests: int = MOST_REQUESTS
    """Inferences in progress; further ones are refused."""
    traces: bool = False
    """Whether requests are traced, so that it counts which trace their callers name."""

    def __post_init__(self) -> None:
        if self.identity is not None and self.identity.certificate is None:
            raise InvalidInput("listen", "there is no TLS without a certificate", "give a certificate")
        if self.identity is not None and self.grpc_server == "native":
            raise InvalidInput("listen.grpc_server", "native has no TLS", "take grpcio, or no certificate")
        if self.largest_message < 1 or self.most_requests < 1:
            sizes = f"{self.largest_message=}, {self.most_requests=}"
            raise InvalidInput("listen", f"limits are at least 1, but got {sizes}")
