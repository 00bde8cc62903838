"""Reads targets like ``tfserving://host:8500/model?rest=8501&base_path=/models/mlp``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tuner.adapters.connection.address import checked_port, existing_path, grpc_address, parse_address
from tuner.adapters.connection.security import SECURITY_OPTIONS, Security, parse_security
from tuner.errors import InvalidInput

__all__ = ["TFServingTarget", "parse_target"]

GRPC_PORT = 8500
REST_PORT = 8501
METRICS_PATH = "/monitoring/prometheus/metrics"
SIGNATURE = "serving_default"
FORM = "write tfserving://host:8500/model?rest=8501&base_path=/models/model"
OPTIONS = {
    "rest": str(REST_PORT),
    "metrics": METRICS_PATH,
    "base_path": "",
    "label": "",
    "signature": SIGNATURE,
    "config": "",
    "restart": "",
    **SECURITY_OPTIONS,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TFServingTarget:
    """One model on one TensorFlow Serving server, and what we may touch of it."""

    url: str
    """As the user wrote it."""
    host: str
    port: int
    model: str
    rest_port: int = REST_PORT
    """The REST port, where the metrics are."""
    metrics_path: str = METRICS_PATH
    base_path: Path | None = None
    """The model's folder with its version folders, as it is seen from here; None: only observe."""
    label: str = ""
    """The version label that clients ask for; empty: they take the server's newest version."""
    signature: str = SIGNATURE
    """The signature of our own requests."""
    config: Path | None = None
    """The server's ``--model_config_file``, as it is seen from here; needed where it names versions."""
    restart: Path | None = None
    """The operator's command that restarts the server with other threads."""

    security: Security = field(default_factory=Security)

    @property
    def address(self) -> str:
        """``host:port`` of the gRPC service, as gRPC wants it."""
        return grpc_address(self.host, self.port)


def parse_target(text: str) -> TFServingTarget:
    """Read a target.

    Args:
        text: ``tfserving://HOST[:PORT]/MODEL`` with the options ``rest=PORT``, ``metrics=PATH``,
            ``base_path=FOLDER``, ``label=LABEL``, ``signature=NAME``, ``config=FILE`` and
            ``restart=COMMAND``.

    Raises:
        InvalidInput: It does not have that form, or a folder, file or command is not there.
    """
    address = parse_address(text, scheme="tfserving", port=GRPC_PORT, options=OPTIONS, form=FORM)
    options = address.options
    rest = options["rest"]
    if not (rest.isascii() and rest.isdigit()):
        fix = "write rest=8501, the server's --rest_api_port: that is where its metrics are"
        raise InvalidInput("TARGET", f"rest='{rest}' is not a port", fix)
    if not options["metrics"].startswith("/"):
        raise InvalidInput(
            "TARGET", f"metrics='{options['metrics']}' is not a path", f"write metrics={METRICS_PATH}"
        )
    return TFServingTarget(
        url=text,
        host=address.host,
        port=address.port,
        model=address.model,
        rest_port=checked_port(int(rest), "rest=", FORM),
        metrics_path=options["metrics"],
        base_path=existing_path("base_path", options["base_path"], folder=True),
        label=options["label"],
        signature=options["signature"] or SIGNATURE,
        config=existing_path("config", options["config"], folder=False),
        restart=existing_path("restart", options["restart"], folder=False),
        security=parse_security(options),
    )
