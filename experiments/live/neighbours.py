"""Neighbours of a server on its machine: a busy core, and another Triton under a load of its own.

They are no descendants of this process: those count as ours, as the load generator does, and not as foreign
(:class:`tuner.profiler.host.LocalHost`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tuner.experiments.live.testbed import triton

__all__ = ["busy_core", "busy_triton"]

OTHERS_RATE = 120.0
"""Of the other Triton's load, requests/s."""

ORPHAN = "import subprocess, sys; subprocess.Popen(sys.argv[1:])"
"""The program that starts a neighbour and ends at once, so that it is no descendant of ours."""
LOOP = """
import os, sys, threading, time
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
print("ready", flush=True)
period, begun = float(sys.argv[1]), time.monotonic()
while True:
    if period and (time.monotonic() - begun) // period % 2:
        time.sleep(0.01)
"""


@contextmanager
def busy_core(period: float = 0.0) -> Iterator[None]:
    """Keep one core busy: for ``period`` seconds, then not for as long; 0: always."""
    with _neighbour("-c", LOOP, f"{period:g}"):
        yield


@contextmanager
def busy_triton() -> Iterator[None]:
    """Serve another model from another Triton, under a load of its own."""
    with _neighbour("-m", "tuner.experiments.live.neighbours"):
        yield


@contextmanager
def _neighbour(*arguments: str) -> Iterator[None]:
    """Run Python for the length of a block; it says that it is ready, and ends when its stdin does."""
    command = [sys.executable, "-c", ORPHAN, sys.executable, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        if starter.stdout.readline() != b"ready\n":
            raise RuntimeError("the neighbour did not start")
        try:
            yield
        finally:
            starter.stdin.close()
            starter.stdout.read()  # until it has ended


def _serve() -> None:
    with triton(OTHERS_RATE, model="cnn", quick=True):
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    _serve()
