"""The kinds of faults that are injected into a daemon, its server and the network between them.

Each kind is a function that injects a fault into the test bed, waits until it is over, and returns a few
words that say which form it had. The random generator chooses the form and the times.
"""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.adapters.triton.client import TritonClient
from tuner.adapters.triton.configuration import toggle_reload_mark
from tuner.adapters.triton.target import parse_target
from tuner.experiments.daemon.bed import TARGET, Bed
from tuner.experiments.daemon.process import wait_until
from tuner.testing.proxy import Mode, Proxy

__all__ = ["KINDS", "Kind"]

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One kind of fault."""

    name: str
    inject: Callable[[Bed, np.random.Generator], str]
    """Injects the fault, waits until it is over, and returns which form it had."""


def _server_killed(bed: Bed, rng: np.random.Generator) -> str:
    bed.server.kill()
    seconds = rng.uniform(0.2, 2 * bed.window)
    time.sleep(seconds)
    bed.server.restart()
    return f"away for {seconds:.1f} s"


def _metrics_hanging(bed: Bed, rng: np.random.Generator) -> str:
    seconds = rng.uniform(1, 3) * bed.window
    _for_a_while(bed.metrics, Mode.HANG, seconds)
    return f"for {seconds:.1f} s"


def _metrics_garbage(bed: Bed, rng: np.random.Generator) -> str:
    name = str(rng.choice(sorted(GARBAGE)))
    bed.metrics.speak(GARBAGE[name])
    time.sleep(2.5 * bed.window)
    bed.metrics.mode = Mode.PASS
    return name


def _counters_reset(bed: Bed, rng: np.random.Generator) -> str:
    """Load the model again as it is: its statistics begin at 0."""
    time.sleep(rng.uniform(0, bed.window))
    client = TritonClient(parse_target(bed.server.target))
    try:
        client.load(toggle_reload_mark(client.config()), LOAD_TIMEOUT)
    finally:
        client.close()
    return "the model was loaded again"


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


def _network_cut(bed: Bed, rng: np.random.Generator) -> str:
    mode = Mode.CUT if rng.integers(2) else Mode.HANG
    seconds = rng.uniform(1, 3) * bed.window
    bed.metrics.mode = mode
    _for_a_while(bed.grpc, mode, seconds)
    bed.metrics.mode = Mode.PASS
    return f"connections were {'refused' if mode is Mode.CUT else 'dropped'} for {seconds:.1f} s"


def _disk_full(bed: Bed, rng: np.random.Generator) -> str:
    """Every write of the daemon to a file fails."""
    if not hasattr(resource, "prlimit"):  # pragma: no cover - Linux only, as is the embedded server
        return "not possible here"
    limits = resource.prlimit(bed.daemon.pid, resource.RLIMIT_FSIZE)
    lines, seconds = len(bed.daemon.lines), rng.uniform(2, 3) * bed.window
    resource.prlimit(bed.daemon.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
    time.sleep(seconds)
    resource.prlimit(bed.daemon.pid, resource.RLIMIT_FSIZE, limits)
    return f"{len(bed.daemon.said('is lost', lines))} windows were lost in {seconds:.1f} s"


def _clock_jump(bed: Bed, rng: np.random.Generator) -> str:
    seconds = float(rng.choice([-86400, -3600, -60, 60, 3600, 86400]))
    Path(f"{bed.daemon.path}.clock").write_text(str(seconds))
    time.sleep(rng.uniform(0, bed.window))
    return f"by {seconds:+g} s"


def _state_corrupted(bed: Bed, rng: np.random.Generator) -> str:
    """Another program overwrites the store while the daemon uses it."""
    _scribble(bed.daemon.state, rng)
    time.sleep(bed.window)
    return "while it ran"


def _state_found_corrupted(bed: Bed, rng: np.random.Generator) -> str:
    bed.daemon.stop()
    _scribble(bed.daemon.state, rng)
    bed.daemon.start()
    return "between two lives"


def _killed_in_apply(bed: Bed, rng: np.random.Generator) -> str:
    found = bed.await_change()
    time.sleep(rng.uniform(0, 0.05))
    bed.daemon.kill()
    left = bed.daemon.rows("SELECT id FROM decision WHERE outcome = 'applying'")
    bed.daemon.start()
    return "a change was under way" if found and left else "a change had just ended"


def _manual_change(bed: Bed, rng: np.random.Generator) -> str:
    space = bed.direct.space
    others = [space.decode(int(index)) for index in space.distinct]
    wanted = others[int(rng.integers(len(others)))]
    time.sleep(rng.uniform(0, bed.window))
    bed.direct.apply(wanted)
    return f"to {space.format(wanted)}"


def _daemon_frozen(bed: Bed, rng: np.random.Generator) -> str:
    seconds = rng.uniform(1, 3) * bed.window
    bed.daemon.signal(signal.SIGSTOP)
    time.sleep(seconds)
    bed.daemon.signal(signal.SIGCONT)
    return f"for {seconds:.1f} s"


def _for_a_while(proxy: Proxy, mode: Mode, seconds: float) -> None:
    proxy.mode = mode
    time.sleep(seconds)
    proxy.mode = Mode.PASS


def _scribble(path: Path, rng: np.random.Generator) -> None:
    """Overwrite most of a file and of its log with random bytes, from a random place in the first page on."""
    for name in (path, path.with_name(f"{path.name}-wal")):
        if not name.exists() or (size := name.stat().st_size) == 0:
            continue
        begin = int(rng.integers(0, 4096))
        with name.open("r+b") as file:
            file.seek(begin)
            file.write(rng.bytes(max(size - begin, 100)))


KINDS = (
    Kind(name="server killed and restarted", inject=_server_killed),
    Kind(name="metrics endpoint hanging", inject=_metrics_hanging),
    Kind(name="garbage metrics", inject=_metrics_garbage),
    Kind(name="counters reset", inject=_counters_reset),
    Kind(name="apply refused", inject=_apply_refused),
    Kind(name="apply hanging", inject=_apply_hanging),
    Kind(name="network cut", inject=_network_cut),
    Kind(name="disk full", inject=_disk_full),
    Kind(name="clock jump", inject=_clock_jump),
    Kind(name="state file corrupted while running", inject=_state_corrupted),
    Kind(name="state file found corrupted", inject=_state_found_corrupted),
    Kind(name="kill -9 in the middle of an apply", inject=_killed_in_apply),
    Kind(name="manual change under its feet", inject=_manual_change),
    Kind(name="daemon frozen", inject=_daemon_frozen),
)
