"""A stand-in for a gateway's Prometheus server: it reports the latency that clients measured."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tuner.profiler.load.generator import LoadGenerator

__all__ = ["mean_latency", "serve_latency"]

ASKED = re.compile(r'server="(?P<name>\w+)"\}\[(?P<range>\d+)ms\]')
"""The parts of a query that matter: the server, and the length of the window."""


def mean_latency(name: str) -> str:
    """Return PromQL for the mean latency of the requests to a server that were answered in a window."""
    seconds, count = (
        f'rate(gateway_seconds_{part}{{server="{name}"}}[{{window}}])' for part in ("sum", "count")
    )
    return f"{seconds} / {count}"


@contextmanager
def serve_latency(clients: Mapping[str, LoadGenerator]) -> Iterator[str]:
    """Serve the mean latency that the clients of each server measured; yields the URL.

    It answers only the query of `mean_latency`. A request counts when it is answered, as in a gateway: the
    latency of one that still waits is not known.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("query", [""])[0]
            asked = ASKED.search(query)
            if asked is None or asked["name"] not in clients:
                self._answer(400, {"status": "error", "error": f"unknown query: {query}"})
                return
            now = time.monotonic()
            latency = clients[asked["name"]].answered(now - int(asked["range"]) / 1e3, now)
            value = [time.time(), str(latency.mean() if latency.size else "NaN")]
            data = {"resultType": "vector", "result": [{"metric": {}, "value": value}]}
            self._answer(200, {"status": "success", "data": data})

        def _answer(self, status: int, content: Mapping[str, object]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log no requests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="gateway", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
