"""Faults of those who reach the daemon's web server."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import numpy as np

from tuner.experiments.daemon.bed import TARGET, Bed
from tuner.experiments.daemon.kinds.kind import expect, kind

__all__ = ["KINDS"]

PROBE = 2.0
"""Longest wait for an answer to a probe, s."""
MOST_LINES = 100
"""Lines that the log may grow by in a flood."""

Client = Callable[[socket.socket], None]


def _orders(connection: socket.socket) -> None:
    """Give orders without a token, one after the other."""
    body = b'{"why": "' + b"x" * 200 + b'"}'
    head = f"POST /api/targets/{TARGET}/pause HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    for _ in range(50):
        connection.sendall(head.encode() + b"Authorization: Bearer wrong\r\n\r\n" + body)
        if not connection.recv(65536):
            return


def _reading(connection: socket.socket) -> None:
    """Ask for all that there is, and read none of it."""
    connection.sendall(
        f"GET /api/targets/{TARGET}/windows?count=100000 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode() * 20
    )
    time.sleep(1.0)


def _aborting(connection: socket.socket) -> None:
    """Ask, and go away before the answer."""
    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 5)


def _garbage(connection: socket.socket) -> None:
    """Say nothing that is HTTP."""
    connection.sendall(bytes(range(256)) * 40)
    connection.recv(65536)


def _slow(connection: socket.socket) -> None:
    """Send a request byte by byte."""
    for byte in b"GET /api/targets HTTP/1.1\r\n":
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


FLOODS: dict[str, tuple[int, Client]] = {
    "orders without a token": (12, _orders),
    "readers that do not read": (80, _reading),
    "clients that abort": (4, _aborting),
    "no HTTP": (12, _garbage),
    "slow requests": (80, _slow),
}
"""How many clients there are, and what each does with one connection after the other."""


@kind("flood on the web server", promise="probes are answered, the log does not fill, orders need the token")
def _flood(bed: Bed, rng: np.random.Generator) -> str:
    name = str(rng.choice(sorted(FLOODS)))
    lines, slowest = len(bed.daemon.lines), 0.0
    ends = time.monotonic() + 2.5 * bed.window
    with _clients(bed.daemon.address, *FLOODS[name]) as opened:
        while time.monotonic() < ends:
            for probe in ("healthz", "readyz"):
                slowest = max(slowest, _probed(f"{bed.daemon.address}/{probe}"))
            time.sleep(0.1)
    said = len(bed.daemon.lines) - lines
    expect(slowest < PROBE, f"{name}: a probe took {slowest:.1f} s")
    expect(said < MOST_LINES, f"{name}: {said} lines were logged")
    expect(not bed.daemon.said("paused", lines), f"{name}: the target was paused")
    return f"{len(opened)} connections, {name}; probes within {slowest:.2f} s, {said} lines logged"


@contextmanager
def _clients(address: str, count: int, client: Client) -> Iterator[list[int]]:
    """Let clients open one connection after the other; yields a list that has an entry for each."""
    over, opened = threading.Event(), list[int]()
    place = urlsplit(address)

    def go_on() -> None:
        while not over.is_set():
            try:
                with closing(socket.create_connection((place.hostname, place.port), 2.0)) as connection:
                    opened.append(1)
                    client(connection)
            except OSError:
                pass
            time.sleep(0.01)  # the machine is the daemon's, too

    threads = [threading.Thread(target=go_on, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield opened
    finally:
        over.set()
        for thread in threads:
            thread.join(10)


def _probed(url: str) -> float:
    """Return how long a probe took, s; one that fails took for ever."""
    begun = time.monotonic()
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            answer.read()
    except OSError:
        return float("inf")
    return time.monotonic() - begun


KINDS = (_flood,)
