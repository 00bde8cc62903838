"""Faults of the server, its metrics and the network."""

from __future__ import annotations

import time

import numpy as np

from tuner.adapters.triton.client import TritonClient
from tuner.adapters.triton.configuration import toggle_reload_mark
from tuner.adapters.triton.target import parse_target
from tuner.experiments.daemon.bed import TARGET, Bed
from tuner.experiments.daemon.kinds.kind import expect, kind
from tuner.experiments.daemon.process import wait_until
from tuner.testing.proxy import Mode, Proxy

__all__ = ["KINDS"]

LOAD_TIMEOUT = 60.0
"""s."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
GARBAGE: dict[str, bytes] = {
    "random bytes": bytes(range(256)) * 8,
    "a page of an error": b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 5\r\n\r\nerror",
    "another program's page": HEAD + b"<html><body>It works!</body></html>",
    "impossible numbers": HEAD
    + b"# HELP x\n"
    + b"".join(
        b'nv_inference_request_failure{model="mlp",version="1",reason="OTHER"} %s\n'
        b'nv_inference_request_summary_us{model="mlp",version="1",quantile="0.95"} %s\n' % (number, number)
        for number in (b"NaN", b"-1", b"1e308", b"+Inf")
    ),
    "a page that breaks off": HEAD + b'# HELP x\nnv_inference_request_failure{model="mlp",versi',
    "a page without end": HEAD + b"# HELP x\n" + b"x" * 17_000_000,
}

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
DRIPPING: dict[str, tuple[bytes, bytes]] = {
    "a status line": (b"HTTP/1.1 200 ", b"O"),
    "a header": (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "a body": (HEAD, b"# HELP x\n"),
    "the size of a chunk": (CHUNKED, b"0"),
    "a trailer": (CHUNKED + b"0\r\n", b"X: x\r\n"),
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}
"""How an answer begins, and what comes of it byte by byte."""
OVERDUE = 15.0
"""Longest time after a window until it counts as overdue, s."""


@kind("server killed and restarted", promise="the daemon waits, and what the server lost is put back")
def _server_killed(bed: Bed, rng: np.random.Generator) -> str:
    bed.server.kill()
    seconds = rng.uniform(0.2, 2 * bed.window)
    time.sleep(seconds)
    bed.server.restart()
    return f"away for {seconds:.1f} s"


@kind("metrics endpoint hanging", promise="the window is given up, and a change on probation is undone")
def _metrics_hanging(bed: Bed, rng: np.random.Generator) -> str:
    seconds = rng.uniform(1, 3) * bed.window
    _for_a_while(bed.metrics, Mode.HANG, seconds)
    return f"for {seconds:.1f} s"


@kind("garbage metrics", promise="the page costs a window and nothing else")
def _metrics_garbage(bed: Bed, rng: np.random.Generator) -> str:
    name = str(rng.choice(sorted(GARBAGE)))
    bed.metrics.speak(GARBAGE[name])
    time.sleep(2.5 * bed.window)
    bed.metrics.mode = Mode.PASS
    return name


@kind(
    "dripping metrics", promise="the window is overdue: target_up is 0, and a change on probation is undone"
)
def _metrics_dripping(bed: Bed, rng: np.random.Generator) -> str:
    """The metrics come byte by byte and never end, whatever part of the answer it is."""
    name = str(rng.choice(sorted(DRIPPING)))
    bed.metrics.drip(*DRIPPING[name])
    begun = time.monotonic()
    try:
        down = wait_until(lambda: not bed.daemon.up(TARGET), 3 * bed.window + OVERDUE, every=0.1)
        noticed = time.monotonic() - begun
        time.sleep(bed.window)
    finally:
        bed.metrics.mode = Mode.PASS
    expect(down, f"{name}: target_up is 1 after {noticed:.1f} s")
    return f"{name}; target_up 0 after {noticed:.1f} s"


@kind("counters reset", promise="a window with counters that fell is not used")
def _counters_reset(bed: Bed, rng: np.random.Generator) -> str:
    """Load the model again as it is: its statistics begin at 0."""
    time.sleep(rng.uniform(0, bed.window))
    client = TritonClient(parse_target(bed.server.target))
    try:
        client.load(toggle_reload_mark(client.config()), LOAD_TIMEOUT)
    finally:
        client.close()
    return "the model was loaded again"


@kind("apply refused", promise="the old configuration goes on, and the refusal is stored")
def _apply_refused(bed: Bed, rng: np.random.Generator) -> str:
    """The model cannot be loaded for a while, as after a bad deployment."""
    path = bed.server.repository / TARGET / "1" / "model.py"
    good, lines = path.read_text(), len(bed.daemon.lines)
    path.write_text(f"raise RuntimeError('broken deployment {rng.integers(100)}')\n")
    try:
        bed.await_change()
        refused = wait_until(lambda: bool(bed.daemon.said("failed", lines)), 4 * bed.window)
        time.sleep(bed.window)
    finally:
        path.write_text(good)
    return f"{len(bed.daemon.said('failed', lines))} changes were refused" if refused else "nothing was tried"


@kind("apply hanging", promise="the change stays open until the server says how it ended")
def _apply_hanging(bed: Bed, rng: np.random.Generator) -> str:
    """The network drops all messages while a change is in progress."""
    found = bed.await_change()
    bed.grpc.mode = Mode.HANG
    seconds = rng.uniform(1, 2.5) * bed.window
    time.sleep(seconds)
    lost = bool(rng.integers(2))
    if lost:
        bed.grpc.mode = Mode.CUT
    bed.grpc.mode = Mode.PASS
    what = "its answer was lost" if lost else "its answer came late"
    return f"for {seconds:.1f} s; {what}" if found else "no change came"


@kind("network cut", promise="the daemon waits, and goes on from what the server runs")
def _network_cut(bed: Bed, rng: np.random.Generator) -> str:
    mode = Mode.CUT if rng.integers(2) else Mode.HANG
    seconds = rng.uniform(1, 3) * bed.window
    bed.metrics.mode = mode
    _for_a_while(bed.grpc, mode, seconds)
    bed.metrics.mode = Mode.PASS
    return f"connections were {'refused' if mode is Mode.CUT else 'dropped'} for {seconds:.1f} s"


@kind("manual change under its feet", promise="it is noticed, stored, and respected")
def _manual_change(bed: Bed, rng: np.random.Generator) -> str:
    space = bed.direct.space
    others = [space.decode(int(index)) for index in space.distinct]
    wanted = others[int(rng.integers(len(others)))]
    time.sleep(rng.uniform(0, bed.window))
    bed.direct.apply(wanted)
    return f"to {space.format(wanted)}"


def _for_a_while(proxy: Proxy, mode: Mode, seconds: float) -> None:
    proxy.mode = mode
    time.sleep(seconds)
    proxy.mode = Mode.PASS


KINDS = (
    _server_killed,
    _metrics_hanging,
    _metrics_dripping,
    _metrics_garbage,
    _counters_reset,
    _apply_refused,
    _apply_hanging,
    _network_cut,
    _manual_change,
)
