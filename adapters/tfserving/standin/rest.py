"""The REST port of the stand-in: the metrics, and what each version is doing."""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from google.protobuf import text_format

from tuner.adapters.tfserving.schema import message
from tuner.adapters.tfserving.standin.core import Core, Rejected

__all__ = ["metrics_path", "serve"]

MODELS = "/v1/models/"


def metrics_path(file: str) -> str | None:
    """Return the path that ``--monitoring_config_file`` turns on, None if it does not."""
    if not file:
        return None
    config = text_format.Parse(Path(file).read_text(), message("MonitoringConfig")())
    return config.prometheus_config.path or None if config.prometheus_config.enable else None


def serve(core: Core, host: str, port: int, metrics: str | None) -> ThreadingHTTPServer:
    """Start answering on a port.

    Args:
        core: The models.
        host: The address to listen on.
        port: Its port.
        metrics: The path of the metrics, None for none.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if metrics is not None and self.path == metrics:
                self._answer(HTTPStatus.OK, core.metrics.page(), "text/plain")
            elif self.path.startswith(MODELS) and self.path.endswith("/metadata"):
                name, _, label = (
                    self.path.removeprefix(MODELS).removesuffix("/metadata").partition("/labels/")
                )
                self._metadata(name, label)
            elif self.path.startswith(MODELS):
                self._status(self.path.removeprefix(MODELS))
            else:
                self._answer(HTTPStatus.NOT_FOUND, json.dumps({"error": "Malformed request"}))

        def _status(self, name: str) -> None:
            try:
                states = core.model(message("ModelSpec")(name=name)).states()
            except Rejected as error:
                self._answer(HTTPStatus.NOT_FOUND, json.dumps({"error": str(error)}))
                return
            entries = [
                {
                    "version": str(n),
                    "state": state.name,
                    "status": {"error_code": "UNKNOWN" if error else "OK", "error_message": error},
                }
                for n, (state, error) in states.items()
            ]
            self._answer(HTTPStatus.OK, json.dumps({"model_version_status": entries}))

        def _metadata(self, name: str, label: str) -> None:
            try:
                with core.servable(message("ModelSpec")(name=name, version_label=label)) as (number, _):
                    spec = {"name": name, "version": str(number)}
            except Rejected as error:
                self._answer(HTTPStatus.NOT_FOUND, json.dumps({"error": str(error)}))
                return
            self._answer(HTTPStatus.OK, json.dumps({"model_spec": spec}))

        def _answer(self, status: HTTPStatus, text: str, kind: str = "application/json") -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing for each request."""

    server = ThreadingHTTPServer((host, port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
