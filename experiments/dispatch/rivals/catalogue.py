"""The servers by name: what has to be installed for each, how it is set, and the script that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["BATCH", "MODEL", "SYSTEMS", "WAIT", "BatchingServer"]

MODEL = "small"
"""The network that all of them serve, one of those of the embedded Triton."""
BATCH = 32
"""Largest batch, for all of them."""
WAIT = 0.002
"""s that a request may wait for others, for all of them."""
NOTHING: Mapping[str, str] = MappingProxyType({})
ORT = "onnxruntime==1.31.1"
RAY = ("ray[serve-grpc]==2.60.0", "tritonclient[grpc]==2.73.0", ORT)
RAY_APART = {"HOME": "{folder}", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
"""It keeps to its folder, asks for no token as the others do not, and reports nothing to anybody."""
RAY_FAST = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": "{folder}/haproxy.cfg",
    "RAY_SERVE_HAPROXY_SOCKET_PATH": "{folder}/haproxy.sock",
    "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": "{folder}",
    "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": "{folder}/haproxy.state",
}
"""What its documentation recommends for high throughput."""

NATIVE = {"GRPC_SERVER": "native"}
"""What the dispatcher listens with; gRPC's own server without it."""


class BatchingServer(NamedTuple):
    """A server that forms batches."""

    script: str
    """File beside this one; it is called with the port, a folder for its files, the largest batch, the wait
    and the file of the network."""
    requirements: tuple[str, ...] = ()
    """Packages of its virtual environment; without any it runs in ours."""
    variables: Mapping[str, str] = NOTHING
    """Environment variables that set it; ``{folder}`` stands for the folder for its files."""

    @property
    def path(self) -> Path:
        """Its script."""
        return Path(__file__).with_name(self.script)


SYSTEMS = {
    "dispatcher and Triton": BatchingServer("ours.py"),
    "dispatcher, model in its process": BatchingServer("ours_alone.py"),
    "native dispatcher and Triton over HTTP": BatchingServer("ours.py", (), {**NATIVE, "OVER_HTTP": "1"}),
    "native dispatcher, model in its process": BatchingServer("ours_alone.py", (), NATIVE),
    "MLServer": BatchingServer("mlserver_small.py", ("mlserver==1.7.1", ORT)),
    "Ray Serve": BatchingServer("ray_small.py", RAY, RAY_APART | RAY_FAST),
}
"""Ours first: the others are compared with it."""
