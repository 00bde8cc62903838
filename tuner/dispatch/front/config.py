"""Where the fronts listen, and what they take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.errors import InvalidInput

__all__ = ["Address", "FrontConfig"]

LARGEST_MESSAGE = 16_000_000
"""Bytes of a request, and of an answer, unless it is set otherwise."""
MOST_REQUESTS = 2_000
"""Inferences in progress, likewise."""
Address = tuple[str, int]
"""A host and a port; port 0 stands for any that is free."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FrontConfig:
    """Where the fronts listen, and what they take."""

    grpc: Address | None = None
    """Where KServe's and TensorFlow Serving's gRPC are spoken; nowhere if None."""
    http: Address | None = None
    """Where KServe's HTTP is spoken; nowhere if None."""
    certificate: Path | None = None
    """The server's certificate; in the clear without it."""
    key: Path | None = None
    """The key of the certificate."""
    client_ca: Path | None = None
    """Certificates of whom clients must be certified by; anybody may connect if None."""
    token: str | None = None
    """The bearer token that every request needs, but for those that ask whether the server is ready."""
    largest_message: int = LARGEST_MESSAGE
    """Bytes of a request, and of an answer."""
    most_requests: int = MOST_REQUESTS
    """Inferences in progress; further ones are refused."""
    traces: bool = False
    """Whether requests are traced, so that it counts which trace their callers name."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InvalidInput("listen", "certificate and key belong together", "give both files")
        if self.client_ca is not None and self.certificate is None:
            raise InvalidInput(
                "listen", "client_ca without a certificate has no effect", "give a certificate"
            )
        if self.largest_message < 1 or self.most_requests < 1:
            sizes = f"{self.largest_message=}, {self.most_requests=}"
            raise InvalidInput("listen", f"limits are at least 1, but got {sizes}")
