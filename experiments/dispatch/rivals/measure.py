"""Measures one server under load, as a process that is alone: ``measure.py NAME PYTHON REQUESTS SECONDS``.

It runs in namespaces of its own (:mod:`tuner.experiments.dispatch.rivals.apart`). There is no network but the
loopback, for Ray listens on all addresses whatever its settings say; every other process in sight belongs to
the server, which may start as many as it likes; and all of them end with this one.
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
from contextlib import suppress
from pathlib import Path
from statistics import median

import grpc
import numpy as np
import psutil

from tuner.adapters.triton.embedded.repository import make_repository
from tuner.experiments.dispatch.rivals.catalogue import BATCH, MODEL, SYSTEMS, WAIT
from tuner.experiments.dispatch.rivals.clients import AskingClients

CALLERS = 2 * BATCH
RATE = 50.0
"""Requests/s of the light load."""
IDLE = 3.0
"""s for which the server is watched while nobody asks it anything."""
PORT = 9000
START = 240.0
"""s that a server may take until it answers."""
END = 20.0
"""s that a server gets to clear away what it left outside its processes."""
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


async def wait_for_an_answer(clients: AskingClients, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers; end with the end of its log if it does not."""
    ends = time.monotonic() + START
    while server.poll() is None and time.monotonic() < ends:
        try:
            await clients.ask(0)
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.2)
        else:
            return
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    sys.exit(f"it does not answer: {' | '.join(lines[-3:])[-300:]}")


async def measure(clients: AskingClients, requests: int, seconds: float) -> dict[str, float]:
    """Return what a server needs, as :class:`~tuner.experiments.dispatch.rivals.apart.RequestCost` has it."""
    await clients.at_once(CALLERS, max(requests // 5, CALLERS))  # warms up
    begin, since = others_cpu_seconds(), time.monotonic()
    await asyncio.sleep(IDLE)
    idle = (others_cpu_seconds() - begin) / (time.monotonic() - since)
    begin, since = others_cpu_seconds(), time.monotonic()
    await clients.at_once(CALLERS, requests)
    busy, took = others_cpu_seconds() - begin, time.monotonic() - since
    gaps = np.random.default_rng(0).exponential(1 / RATE, round(RATE * seconds))
    latencies = await clients.at_times(np.cumsum(gaps).tolist())
    return {"busy": busy / requests, "idle": idle, "took": took / requests, "latency": median(latencies)}


async def main(name: str, python: str, requests: int, seconds: float) -> None:
    """Start a server, and print what it needs."""
    bring_loopback_up()
    system = SYSTEMS[name]
    with tempfile.TemporaryDirectory(prefix="servetune-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "log"
        make_repository(Path(folder), [MODEL])
        network = (Path(folder) / MODEL / "1" / "model.onnx").resolve()
        command = [python, "-P", str(system.path), str(PORT), folder, str(BATCH), str(WAIT), str(network)]
        variables = {one: value.format(folder=folder) for one, value in system.variables.items()}
        with log.open("wb") as written:
            environment = {**os.environ, **variables}
            server = subprocess.Popen(command, stdout=written, stderr=written, cwd=folder, env=environment)
        try:
            async with AskingClients(PORT, network) as clients:
                await wait_for_an_answer(clients, server, log)
                print(json.dumps(await measure(clients, requests, seconds)))
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):  # what is left then ends with this process
                server.wait(END)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
