"""A model server: it answers requests over gRPC, and two settings can be changed while it runs.

``workers`` requests are executed at a time. An execution cuts its input into ``tile`` pieces; -1 leaves the
number to the server. Messages are JSON. Run it with ``python -m kettle.server 7301``.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent import futures
from typing import Any

import grpc

MODEL = "tea"
SECONDS = {-1: 0.012, 1: 0.030, 2: 0.018, 4: 0.009, 8: 0.015}
"""Number of pieces -> how long an execution takes, s."""
MOST_WORKERS = 8
THREADS = 64


class Kettle:
    """The server's state; each method named after one of the protocol takes bytes and returns bytes."""

    def __init__(self) -> None:
        self.settings = {"tile": 1, "workers": 1}
        self.counts = {"answered": 0, "nanoseconds": 0}
        self.waiting = 0
        self._executing = 0
        self._changed = threading.Condition()

    def brew(self, request: bytes, context: Any) -> bytes:
        """Infer: wait for a worker, execute, count."""
        begun = time.monotonic_ns()
        if not request.startswith(MODEL.encode()):
            context.abort(grpc.StatusCode.NOT_FOUND, "there is no such model")
        with self._changed:
            self.waiting += 1
            self._changed.wait_for(lambda: self._executing < self.settings["workers"])
            self.waiting -= 1
            self._executing += 1
            seconds = SECONDS[self.settings["tile"]]
        time.sleep(seconds)
        with self._changed:
            self._executing -= 1
            self.counts["answered"] += 1
            self.counts["nanoseconds"] += time.monotonic_ns() - begun
            self._changed.notify_all()
        return b"{}"

    def inputs(self, request: bytes, context: Any) -> bytes:
        """Describe the inputs of a model."""
        if request.decode() != MODEL:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no model '{request.decode()}'")
        return json.dumps([{"name": "leaves", "datatype": "FP32", "shape": [-1, 16]}]).encode()

    def status(self, request: bytes, context: Any) -> bytes:
        """Return the settings in force and what was counted since the start."""
        return json.dumps({"settings": self.settings, "waiting": self.waiting, **self.counts}).encode()

    def change(self, request: bytes, context: Any) -> bytes:
        """Replace the settings: all or none."""
        wanted = {name: int(value) for name, value in json.loads(request).items()}
        if wanted["tile"] not in SECONDS or not 1 <= wanted["workers"] <= MOST_WORKERS:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no kettle can be set to {wanted}")
        with self._changed:
            self.settings = wanted
            self._changed.notify_all()
        return b"{}"


def serve(port: int = 0) -> tuple[Any, int, Kettle]:
    """Start serving on this machine; return the gRPC server, its port, and the state."""
    kettle = Kettle()
    methods = {
        name.capitalize(): grpc.unary_unary_rpc_method_handler(getattr(kettle, name))
        for name in ("brew", "inputs", "status", "change")
    }
    server = grpc.server(futures.ThreadPoolExecutor(THREADS))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("kettle.Kettle", methods),))
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, bound, kettle


if __name__ == "__main__":
    running, where, _ = serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(f"kettle://127.0.0.1:{where}/{MODEL}", flush=True)
    running.wait_for_termination()
