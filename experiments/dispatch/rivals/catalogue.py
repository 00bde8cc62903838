"""The servers by name: what has to be installed for them, and the script that runs each."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["BATCH", "SYSTEMS", "WAIT", "BatchingServer"]

BATCH = 32
"""Most requests of a batch, for all of them."""
WAIT = 0.002
"""s that a request may wait for others, where that is set."""


class BatchingServer(NamedTuple):
    """A server."""

    script: str
    """File beside this one, called with the port and a folder for its files."""
    requirements: tuple[str, ...] = ()
    """Packages of its environment; without any it runs in ours."""

    @property
    def path(self) -> Path:
        """Its script."""
        return Path(__file__).with_name(self.script)


SYSTEMS = {
    "dispatcher": BatchingServer("ours.py"),
    "Ray Serve": BatchingServer("ray_serve.py", ("ray[serve-grpc]==2.60.0", "tritonclient[grpc]==2.73.0")),
    "MLServer": BatchingServer("mlserver_echo.py", ("mlserver==1.7.1",)),
}
"""Ours first: the others are compared with it."""
