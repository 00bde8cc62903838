"""Reads targets like ``tfserving://host:8500/model?rest=8501&base_path=/models/mlp``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.adapters.connection.address import Option, existing_path
from tuner.adapters.connection.target import LiveTarget, TargetForm, parse_live_target, port_option
from tuner.errors import InvalidInput

__all__ = ["FORM", "METRICS_PATH", "SIGNATURE", "TFServingTarget", "parse_target"]

REST_PORT = 8501
METRICS_PATH = "/monitoring/prometheus/metrics"
SIGNATURE = "serving_default"
"""The signature that a server takes where none is named."""
FORM = TargetForm(
    scheme="tfserving",
    port=8500,
    options={
        "rest": Option(str(REST_PORT), "port of its REST API, where its metrics are"),
        "metrics": Option(METRICS_PATH, "path of its metrics page"),
        "base_path": Option(
            "",
            "the model's folder, as it is seen from here, with the version folders; else it is only observed",
        ),
        "label": Option(
            "", "the version label that clients ask for; without it they take the newest version"
        ),
        "signature": Option(SIGNATURE, "the signature of our own requests"),
        "config": Option("", "its `--model_config_file`, as it is seen from here, where that names versions"),
        "restart": Option("", "command that restarts it with other threads"),
    },
    example="tfserving://host:8500/model?rest=8501&base_path=/models/model",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TFServingTarget(LiveTarget):
    """One model on one TensorFlow Serving server, and what we may touch of it."""

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


def parse_target(text: str) -> TFServingTarget:
    """Read a target.

    Args:
        text: ``tfserving://HOST[:PORT]/MODEL`` with the options ``rest=PORT``, ``metrics=PATH``,
            ``base_path=FOLDER``, ``label=LABEL``, ``signature=NAME``, ``config=FILE`` and
            ``restart=COMMAND``, and those of ``adapters.connection.security``.

    Raises:
        InvalidInput: It does not have that form, or a folder, file or command is not there.
    """
    target, options = parse_live_target(text, FORM)
    fix = "write rest=8501, the server's --rest_api_port: that is where its metrics are"
    rest_port = port_option("rest", options["rest"], FORM, fix)
    if not options["metrics"].startswith("/"):
        raise InvalidInput(
            "TARGET", f"metrics='{options['metrics']}' is not a path", f"write metrics={METRICS_PATH}"
        )
    return TFServingTarget(
        **target.common(),
        rest_port=rest_port,
        metrics_path=options["metrics"],
        base_path=existing_path("base_path", options["base_path"], folder=True),
        label=options["label"],
        signature=options["signature"] or SIGNATURE,
        config=existing_path("config", options["config"], folder=False),
        restart=existing_path("restart", options["restart"], folder=False),
    )
