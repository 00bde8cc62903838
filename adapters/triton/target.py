"""Reads targets like ``triton://host:8001/model?metrics=8002``."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from tuner.adapters.registry import parameters
from tuner.errors import InvalidInput

__all__ = ["Target", "parse_target"]

GRPC_PORT = 8001
METRICS_PORT = "8002"
FORM = "write triton://host:8001/model?metrics=8002"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
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

    @property
    def address(self) -> str:
        """``host:port`` of the gRPC service, as gRPC wants it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_target(text: str) -> Target:
    """Read a target.

    Args:
        text: ``triton://HOST[:PORT]/MODEL`` with the options ``metrics=PORT`` or ``metrics=off`` and
            ``version=NUMBER``.

    Raises:
        InvalidInput: It does not have that form.
    """
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError as error:
        raise InvalidInput("TARGET", f"'{text}': {error}", FORM) from None
    model = unquote(url.path.strip("/"))
    if url.scheme != "triton" or not host or not model or "/" in model or url.fragment:
        raise InvalidInput("TARGET", f"'{text}' does not name a host and a model", FORM)
    if url.username is not None or url.password is not None:
        raise InvalidInput("TARGET", "user names and passwords are not supported", FORM)
    options = parameters(url, {"metrics": METRICS_PORT, "version": ""})
    if options["version"] and not (options["version"].isascii() and options["version"].isdigit()):
        raise InvalidInput(
            "TARGET", f"version '{options['version']}' is not a number", "write version=1 or leave it out"
        )
    return Target(
        url=text,
        host=host,
        port=GRPC_PORT if port is None else _checked_port(port, "the port"),
        model=model,
        version=options["version"],
        metrics_port=_metrics_port(options["metrics"]),
    )


def _metrics_port(text: str) -> int | None:
    if text == "off":
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput("TARGET", f"metrics='{text}' is not a port", "write metrics=8002 or metrics=off")
    return _checked_port(int(text), "metrics=")


def _checked_port(port: int, what: str) -> int:
    if not 1 <= port <= 65535:
        raise InvalidInput("TARGET", f"{what} {port} is not between 1 and 65535", FORM)
    return port
