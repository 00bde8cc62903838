"""Reads targets like ``triton://host:8001/model?metrics=8002``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.adapters.connection.address import Option, existing_path
from tuner.adapters.connection.target import LiveTarget, TargetForm, parse_live_target, port_option
from tuner.errors import InvalidInput

__all__ = ["FORM", "TritonTarget", "parse_target"]

FORM = TargetForm(
    scheme="triton",
    port=8001,
    options={
        "metrics": Option("8002", "port of its metrics page; `off` goes without"),
        "version": Option("", "the model's version; without it the server's choice, counted over all"),
        "repository": Option("", "folder of all models, as it is seen from here: for the mode `poll`"),
        "http": Option(
            "", "port of its HTTP service: `tuner dispatch` sends batches there, at half the cost of gRPC"
        ),
    },
    example="triton://host:8001/model?metrics=8002",
    replicated=True,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TritonTarget(LiveTarget):
    """One model on one Triton server, and where its metrics are."""

    version: str = ""
    """The model's version; empty for the server's choice, with the statistics of all."""
    metrics_port: int | None = None
    """None for a server without metrics."""
    http_port: int | None = None
    """Of its HTTP service, over which the dispatcher sends batches; None to send them over gRPC."""
    repository: Path | None = None
    """The folder of all models, as it is seen from here; for servers that poll it."""


def parse_target(text: str) -> TritonTarget:
    """Read a target.

    Args:
        text: ``triton://HOST[:PORT]/MODEL`` with the options ``metrics=PORT`` or ``metrics=off``,
            ``http=PORT``, ``version=NUMBER`` and ``repository=FOLDER``, and those of
            ``adapters.connection.security``.

    Raises:
        InvalidInput: It does not have that form.
    """
    target, options = parse_live_target(text, FORM)
    version, metrics, http = options["version"], options["metrics"], options["http"]
    if version and not (version.isascii() and version.isdigit()):
        raise InvalidInput(
            "TARGET", f"version '{version}' is not a number", "write version=1 or leave it out"
        )
    if http and target.security.grpc:
        raise InvalidInput("TARGET", "http= has no TLS", "leave http= out, and batches go over gRPC")
    fix = "write metrics=8002 or metrics=off"
    return TritonTarget(
        **target.common(),
        version=version,
        metrics_port=None if metrics == "off" else port_option("metrics", metrics, FORM, fix),
        http_port=port_option("http", http, FORM, "write http=8000") if http else None,
        repository=existing_path("repository", options["repository"], folder=True),
    )
