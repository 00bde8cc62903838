"""What the daemon costs when it only watches ten servers, and how late a thousand targets in a process are.

Ten live targets (one Triton behind ten ports) at windows of 10 s in mode ``observe``: CPU, memory, and
whether torch is loaded. Then a thousand simulated ones in ``observe`` and in ``recommend``: how much later
than a window after the one before each window was written down. That includes waiting for a processor,
measuring, deciding and writing.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.experiments.daemon.process import DaemonProcess, wait_until
from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.profiler.attachment import attach
from tuner.setting import Load
from tuner.testing.proxy import Proxy

__all__ = ["lateness", "run"]

WINDOW = 10.0
"""s."""
LIVE = 10
MANY, QUICK_MANY = 1000, 200
RATE = 50.0
"""requests/s of clients of the live server, and of each simulated one."""
HEAVY = ("libtorch", "libtensorflow")


def run(options: Options) -> Result:
    """Watch few live targets and keep many simulated ones."""
    seconds = 30.0 if options.quick else 60.0
    many = QUICK_MANY if options.quick else MANY
    cpu, memory, heavy = [], [], []
    for seed in options.track(range(options.seeds), "live targets"):
        used, resident, loaded = watch_live(seconds, seed)
        cpu.append(used)
        memory.append(resident)
        heavy.append(float(loaded))
    rows = [
        row(
            f"CPU of {LIVE} live targets, observe",
            cpu,
            unit="% of a core",
            published=3.0,
            note="target: below",
        ),
        row(
            f"memory of {LIVE} live targets, observe",
            memory,
            unit="MiB",
            published=150.0,
            note="target: below",
        ),
        row("torch or TensorFlow loaded", heavy, published=0.0),
    ]
    for mode in options.track(("observe", "recommend"), "many targets"):
        rows += keep_many(mode, many, seconds, options)
    return Result(
        experiment="daemon-idle",
        seeds=options.seeds,
        configuration={"window": WINDOW, "live": LIVE, "many": many, "rate": RATE, "seconds": seconds},
        rows=rows,
    )


def watch_live(seconds: float, seed: int) -> tuple[float, float, bool]:
    """Watch ten targets; return % of a core, MiB, and whether something heavy was loaded."""
    with ExitStack() as opened:
        server = opened.enter_context(EmbeddedTriton())
        opened.enter_context(attach(server.target, load=Load(rate=RATE), seed=seed))
        urls = []
        for _ in range(LIVE):
            port = opened.enter_context(Proxy(server.ports.grpc)).port
            urls.append(f"triton://127.0.0.1:{port}/mlp?metrics={server.ports.metrics}")
        daemon = opened.enter_context(keeping(urls, "observe"))
        wait_until(lambda: _windows(daemon) >= LIVE, 60)
        process = daemon.usage
        before, begun = process.cpu_times(), time.monotonic()
        time.sleep(seconds)
        after, taken = process.cpu_times(), time.monotonic() - begun
        used = after.user + after.system - before.user - before.system
        loaded = any(word in entry.path for entry in process.memory_maps() for word in HEAVY)
        return used / taken * 100, process.memory_info().rss / 2**20, loaded


def keep_many(mode: str, count: int, seconds: float, options: Options) -> list[Row]:
    """Keep simulated targets for a while after each had its first window."""
    urls = [f"sim://mlp?rate={RATE:g}&seed={number}" for number in range(count)]
    with keeping(urls, mode) as daemon:
        begun = time.monotonic()
        wait_until(lambda: _windows(daemon) >= count, 120, every=0.5)
        taken, before = time.monotonic() - begun, daemon.usage.cpu_times()
        time.sleep(seconds)
        after, resident = daemon.usage.cpu_times(), daemon.usage.memory_info().rss / 2**20
        late = lateness(daemon.rows("SELECT target, time FROM window ORDER BY target, id"))
    used = (after.user + after.system - before.user - before.system) / seconds * 100
    options.report(f"{count} targets, {mode}: latest {late.max():.1f} s, {used:.0f} % of a core")
    name = f"{count:,} simulated targets, {mode}"
    quantiles = np.percentile(late, [50, 99, 100])
    note = f"target: below; median of {len(late):,} {quantiles[0]:.2f} s, latest {quantiles[2]:.1f} s"
    return [
        row(f"{name}: loop latency, 99 %", [quantiles[1]], unit="s", published=WINDOW, note=note),
        row(f"{name}: CPU", [used], unit="% of a core"),
        row(f"{name}: memory", [resident], unit="MiB", note=f"all had a window after {taken:.0f} s"),
    ]  # fmt: skip


def lateness(windows: Sequence[tuple[int, float]]) -> np.ndarray:
    """Return by how much more than a window each came after the one before of its target.   # (n,) s.

    Args:
        windows: Targets and times, s, ordered by target and time.
    """
    targets = np.array([target for target, _ in windows])
    times = np.array([time for _, time in windows])
    same = targets[1:] == targets[:-1]
    return np.asarray(np.maximum(np.diff(times)[same] - WINDOW, 0.0))


@contextmanager
def keeping(urls: Sequence[str], mode: str) -> Iterator[DaemonProcess]:
    """Keep targets in a process of their own, for the length of a block."""
    with tempfile.TemporaryDirectory(prefix="servetune-idle-") as folder:
        path = Path(folder) / "servetune.yaml"
        lines = [
            f"  - {{name: t{number}, url: '{url}', slo: mean=100ms, mode: {mode}, window: {WINDOW:g}s}}\n"
            for number, url in enumerate(urls)
        ]
        path.write_text("state: servetune.db\ntargets:\n" + "".join(lines))
        with DaemonProcess(path) as daemon:
            yield daemon


def _windows(daemon: DaemonProcess) -> int:
    """How many targets had a window."""
    found = daemon.rows("SELECT count(DISTINCT target) AS targets FROM window")
    return int(found[0]["targets"]) if found else 0
