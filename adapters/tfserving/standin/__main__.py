"""Runs the stand-in until SIGTERM: ``python -m tuner.adapters.tfserving.standin --port=8500 ...``."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading

from tuner.adapters.tfserving.standin.flags import parse_flags

HOST = "127.0.0.1"
GRACE = 1.0


def main(arguments: list[str]) -> None:
    """Serve until SIGTERM or SIGINT."""
    options = parse_flags(arguments)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from tuner.adapters.tfserving.standin import rest, service
    from tuner.adapters.tfserving.standin.core import Core

    # A collection after a version is unloaded must not look at TensorFlow's 300,000 objects: requests wait.
    gc.freeze()
    core = Core(options)
    server = service.serve(core, HOST, options.port, options.grpc_max_threads)
    web = None
    if options.rest_api_port:
        path = rest.metrics_path(options.monitoring_config_file)
        web = rest.serve(core, HOST, options.rest_api_port, path)
    logging.info("serving on port %d", options.port)
    ended.wait()
    server.stop(GRACE).wait()
    if web is not None:
        web.shutdown()
    core.stop()
    os._exit(0)  # TensorFlow's own threads take seconds to end


if __name__ == "__main__":
    main(sys.argv[1:])
