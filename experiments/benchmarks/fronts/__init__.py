"""The dispatcher's fronts: requests per second and core, and the latency that a front adds.

A front in a process of its own answers at once what it is asked; what is counted is the time that this
process is on a core, so that clients and other processes make no difference. Beside our fronts stand other
ways to build them, and what the libraries themselves need at least.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from statistics import median

from tuner.experiments.benchmarks.fronts.clients import ask_grpc, ask_http
from tuner.experiments.benchmarks.fronts.servers import FrontProcess
from tuner.experiments.benchmarks.report import BenchOptions, BenchRow, compared
from tuner.plugin import check_installed

__all__ = ["run"]

CALLERS = 32
REQUESTS = 6_000
QUICK = 40
WAYS = {
    "KServe over gRPC": ("front-grpc", "servicer", "grpc.aio with its generated servicer and no limits"),
    "KServe over gRPC, native": ("front-native", "servicer", "the same"),
    "KServe over gRPC, calls of one message": ("unary", "servicer", "the same"),
    "KServe over gRPC, threads in place of asyncio": ("threads", "servicer", "the same"),
    "KServe over gRPC, bytes sent back": ("bytes", "servicer", "the same: what any front needs at least"),
    "Predict over gRPC": ("front-predict", "servicer", "KServe's by grpc.aio"),
    "KServe over HTTP, JSON": ("front-http", "fastapi", "FastAPI, without checks or limits"),
}
"""What is measured -> the server, the one that it is compared with, and what that is."""


def run(options: BenchOptions) -> list[BenchRow]:
    """Measure everything; ``options.repeats`` is how often.

    Raises:
        InvalidInput: The extra ``native`` is not installed.
        AdapterError: A front ended before it listened.
    """
    check_installed("pygrpc_native", "fronts")
    requests = REQUESTS // (QUICK if options.quick else 1)
    names = dict.fromkeys(name for way in WAYS.values() for name in way[:2])
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    rounds = [name for _ in range(options.repeats) for name in names]  # in turn: what disturbs, disturbs all
    for name in options.track(rounds, "servers"):
        found[name].append(_measure(name, requests))
    return list(_rows(found))


def _rows(found: dict[str, list[tuple[float, float]]]) -> Iterator[BenchRow]:
    rates, latencies = (
        {name: median(one[part] for one in many) for name, many in found.items()} for part in (0, 1)
    )
    for title, (name, rival, note) in WAYS.items():
        yield compared(title, rates[name], rates[rival], "requests/s per core", note=f"baseline: {note}")
    for title, (name, rival, what) in WAYS.items():
        if name.startswith("front"):
            value, baseline = latencies[name] * 1e3, latencies[rival] * 1e3
            note = f"p50 of one caller; baseline: {what}"
            yield compared(f"{title}, added latency", value, baseline, "ms", less=True, note=note)


def _measure(name: str, requests: int) -> tuple[float, float]:
    """Return the requests per second of the server's core time, and the median latency of one caller, s."""
    ask = ask_http if name in ("front-http", "fastapi") else ask_grpc
    with FrontProcess(name) as server:
        asyncio.run(ask(server.port, name, CALLERS, max(requests // 10, CALLERS)))  # warms up
        begin = server.cpu_seconds()
        asyncio.run(ask(server.port, name, CALLERS, requests))
        busy = server.cpu_seconds() - begin
        alone = asyncio.run(ask(server.port, name, 1, max(requests // 10, 20)))
    return requests // CALLERS * CALLERS / busy, median(alone)
