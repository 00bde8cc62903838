"""The REST port of the stand-in: the metrics, and what each version is doing."""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from tuner.adapters.tfserving.schema import message
from tuner.adapters.tfserving.standin.core import Core, Rejected

__all__ = ["metrics_path", "serve"]

MODELS = "/v1/models/"
METADATA = "/metadata"


def metrics_path(file: str) -> str | None:
    """Return the path that ``--monitoring_config_file`` turns on, None if it does not."""
    if not file:
        return None
    config = text_format.Parse(Path(file).read_text(), message("MonitoringConfig")())
    return config.prometheus_config.path or None if config.prometheus_config.enable else None


class RestServer(ThreadingHTTPServer):
    """Answers on a port, each connection in a thread of its own.

    Args:
        core: The models.
        address: Where to listen.
        metrics: The path of the metrics, None for none.
    """

    def __init__(self, core: Core, address: tuple[str, int], metrics: str | None) -> None:
        self.core = core
        self.metrics = metrics
        super().__init__(address, RestHandler)


class RestHandler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    server: RestServer

    def do_GET(self) -> None:
        """Answer one request."""
        name, is_metadata, label = _asked(self.path)
        if self.server.metrics is not None and self.path == self.server.metrics:
            self._answer(HTTPStatus.OK, self.server.core.metrics.page(), "text/plain")
        elif name is None:
            self._answer_json({"error": "Malformed request"}, HTTPStatus.NOT_FOUND)
        else:
            try:
                self._answer_json(self._metadata(name, label) if is_metadata else self._status(name))
            except Rejected as error:
                self._answer_json({"error": str(error)}, HTTPStatus.NOT_FOUND)

    def _status(self, name: str) -> Any:
        """Return what each version of a model is doing."""
        states = self.server.core.model(message("ModelSpec")(name=name)).states()
        entries = [
            {
                "version": str(n),
                "state": state.name,
                "status": {"error_code": "UNKNOWN" if error else "OK", "error_message": error},
            }
            for n, (state, error) in states.items()
        ]
        return {"model_version_status": entries}

    def _metadata(self, name: str, label: str) -> Any:
        """Return which version a label stands for."""
        spec = message("ModelSpec")(name=name, version_label=label)
        with self.server.core.servable(spec) as (number, _):
            return {"model_spec": {"name": name, "version": str(number)}}

    def _answer_json(self, content: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._answer(status, json.dumps(content), "application/json")

    def _answer(self, status: HTTPStatus, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing for each request."""


def _asked(path: str) -> tuple[str | None, bool, str]:
    """Return which model a path asks for, None for none; whether for its metadata; and of which label."""
    if not path.startswith(MODELS):
        return None, False, ""
    rest = path.removeprefix(MODELS)
    name, _, label = rest.removesuffix(METADATA).partition("/labels/")
    return (name, True, label) if rest.endswith(METADATA) else (rest, False, "")


def serve(core: Core, host: str, port: int, metrics: str | None) -> RestServer:
    """Start answering on a port.

    Args:
        core: The models.
        host: The address to listen on.
        port: Its port.
        metrics: The path of the metrics, None for none.
    """
    server = RestServer(core, (host, port), metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
