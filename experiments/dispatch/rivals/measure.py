"""Measures one server under load, as a process that is alone: ``measure.py NAME PYTHON REQUESTS``.

It runs in namespaces of its own (:mod:`tuner.experiments.dispatch.rivals.apart`). There is no network but the
loopback, for Ray listens on all addresses whatever it is told; every other process in sight belongs to the
server, which may start as many as it likes; and all of them end with this one.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import grpc
import psutil

from tuner.experiments.benchmarks.fronts.clients import ask_grpc
from tuner.experiments.dispatch.rivals.catalogue import BATCH, SYSTEMS, WAIT

CALLERS = 32
PORT = 9000
START = 120.0
"""s that a server may take until it answers."""
SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x41
"""Linux' SIOCSIFFLAGS, and the flags IFF_UP and IFF_RUNNING."""


def bring_loopback_up() -> None:
    """Switch the loopback device of this namespace on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as some:
        fcntl.ioctl(some, SET_FLAGS, struct.pack("16sh22x", b"lo", UP_AND_RUNNING))


def others_cpu_seconds() -> float:
    """Return how long all other processes have been on a core, s."""
    total = 0.0
    for process in psutil.process_iter():
        if process.pid != os.getpid():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            total += times.user + times.system
    return total


def wait_for_an_answer(server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers; end with the end of its log if it does not."""
    ends = time.monotonic() + START
    while server.poll() is None and time.monotonic() < ends:
        try:
            asyncio.run(ask_grpc(PORT, "", 1, 1))
        except grpc.aio.AioRpcError:
            time.sleep(0.2)
        else:
            return
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    sys.exit(f"it does not answer: {' | '.join(lines[-3:])[-300:]}")


def main(name: str, python: str, requests: int) -> None:
    """Start a server, and print its requests per second of core time, and its median latency."""
    bring_loopback_up()
    with tempfile.TemporaryDirectory(prefix="servetune-") as folder:
        log = Path(folder) / "log"
        command = [python, "-P", str(SYSTEMS[name].path), str(PORT), folder, str(BATCH), str(WAIT)]
        with log.open("wb") as written:
            server = subprocess.Popen(command, stdout=written, stderr=written, cwd=folder)
        wait_for_an_answer(server, log)
        asyncio.run(ask_grpc(PORT, "", CALLERS, max(requests // 10, CALLERS)))  # warms up
        begin = others_cpu_seconds()
        latencies = asyncio.run(ask_grpc(PORT, "", CALLERS, requests))
        busy = others_cpu_seconds() - begin
        server.kill()
    print(json.dumps({"rate": len(latencies) / busy, "latency": median(latencies)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
