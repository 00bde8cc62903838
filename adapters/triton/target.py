"""Reads targets like ``triton://host:8001/model?metrics=8002``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tuner.adapters.connection.address import checked_port, existing_path, grpc_address, parse_address
from tuner.adapters.connection.security import SECURITY_OPTIONS, Security, parse_security
from tuner.errors import InvalidInput

__all__ = ["GRPC_PORT", "TritonTarget", "parse_target"]

GRPC_PORT = 8001
METRICS_PORT = "8002"
FORM = "write triton://host:8001/model?metrics=8002"
OPTIONS = {"metrics": METRICS_PORT, "version": "", "repository": "", **SECURITY_OPTIONS}


@dataclass(frozen=True, kw_only=True, slots=True)
class TritonTarget:
    """One model on one Triton server, and where its metrics are."""

    url: str
    """As the user wrote it."""
    host: str
    port: int
    model: str
    version: str = ""
    """The model's version; empty for the server's choice, with the statistics of all."""
    metrics_port: int | None = None
    """None for a server without metrics."""
    security: Security = field(default_factory=Security)
    repository: Path | None = None
    """The folder of all models, as it is seen from here; for servers that poll it."""

    @property
    def address(self) -> str:
        """``host:port`` of the gRPC service, as gRPC wants it."""
        return grpc_address(self.host, self.port)


def parse_target(text: str) -> TritonTarget:
    """Read a target.

    Args:
        text: ``triton://HOST[:PORT]/MODEL`` with the options ``metrics=PORT`` or ``metrics=off``,
            ``version=NUMBER`` and ``repository=FOLDER``, and those of ``adapters.connection.security``.

    Raises:
        InvalidInput: It does not have that form.
    """
    address = parse_address(text, scheme="triton", port=GRPC_PORT, options=OPTIONS, form=FORM)
    version = address.options["version"]
    if version and not (version.isascii() and version.isdigit()):
        raise InvalidInput(
            "TARGET", f"version '{version}' is not a number", "write version=1 or leave it out"
        )
    return TritonTarget(
        url=text,
        host=address.host,
        port=address.port,
        model=address.model,
        version=version,
        metrics_port=_metrics_port(address.options["metrics"]),
        security=parse_security(address.options),
        repository=existing_path("repository", address.options["repository"], folder=True),
    )


def _metrics_port(text: str) -> int | None:
    if text == "off":
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput("TARGET", f"metrics='{text}' is not a port", "write metrics=8002 or metrics=off")
    return checked_port(int(text), "metrics=", FORM)
