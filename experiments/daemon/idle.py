"""What the daemon costs when it only watches ten servers, and how late a thousand targets in a process are.

Ten live targets (one Triton behind ten ports) at windows of 10 s in mode ``observe``: CPU, memory, and
whether torch is loaded. Then a thousand simulated ones in ``observe`` and in ``recommend``: how much later
than a window after the one before each window was written down. That includes waiting for a processor,
measuring, deciding and writing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np

from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.experiments.daemon.file import daemon_file
from tuner.experiments.daemon.memory import cpu_over, resident
from tuner.experiments.daemon.process import DaemonProcess, wait_until
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row
from tuner.profiler.attachment import attach
from tuner.setting import Load
from tuner.testing.proxy import Proxy

__all__ = ["DaemonIdle", "lateness"]

WINDOW = 10.0
"""s."""
LIVE = 10
RATE = 50.0
"""requests/s of clients of the live server, and of each simulated one."""
HEAVY = ("libtorch", "libtensorflow")


class LiveCost(NamedTuple):
    """What watching the live targets cost."""

    cpu: float
    """% of a core."""
    memory: float
    """MiB"""
    heavy: bool
    """Whether torch or TensorFlow was loaded."""


class ManyTargets(NamedTuple):
    """How the daemon kept a thousand simulated targets."""

    late: np.ndarray
    """By how much more than a window each window came after the one before.   # (n,) s."""
    cpu: float
    memory: float
    first: float
    """When all had a window, s."""


LIVE_TARGETS = "live targets"
MODES = ("observe", "recommend")


@experiment(
    name="daemon-idle",
    title="What watching ten servers costs, and how late a thousand targets in one process are",
    minutes=7,
    live=True,
)
class DaemonIdle(Experiment[str, Any]):
    """Watches few live targets with every seed, and keeps many simulated ones in both modes."""

    seconds = Scaled(60.0, quick=30.0)
    many = Scaled(1000, quick=200)

    def tasks(self) -> tuple[str, ...]:
        return (LIVE_TARGETS, *MODES)

    def seeds_of(self, task: str) -> Sequence[int]:
        return super().seeds_of(task) if task == LIVE_TARGETS else (0,)

    def measure(self, task: str, seed: int) -> LiveCost | ManyTargets:
        if task == LIVE_TARGETS:
            return watch_live(self.seconds, seed)
        found = keep_many(task, self.many, self.seconds)
        latest = f"latest {found.late.max():.1f} s, {found.cpu:.0f} % of a core"
        self.report(f"{self.many} targets, {task}: {latest}")
        return found

    def rows(self, found: Answers[str, Any]) -> Iterator[Row]:
        cpu, memory, heavy = zip(*found[LIVE_TARGETS], strict=True)
        name, note = f"{LIVE} live targets, observe", "target: below"
        yield row(f"CPU of {name}", cpu, unit="% of a core", published=3.0, note=note)
        yield row(f"memory of {name}", memory, unit="MiB", published=150.0, note=note)
        yield row("torch or TensorFlow loaded", [float(loaded) for loaded in heavy], published=0.0)
        for mode in MODES:
            (kept,) = found[mode]
            yield from _many_rows(f"{self.many:,} simulated targets, {mode}", kept)

    def configuration(self) -> dict[str, Any]:
        return {"window": WINDOW, "live": LIVE, "many": self.many, "rate": RATE, "seconds": self.seconds}


def _many_rows(name: str, kept: ManyTargets) -> list[Row]:
    middle, most, latest = np.percentile(kept.late, [50, 99, 100])
    note = f"target: below; median of {len(kept.late):,} {middle:.2f} s, latest {latest:.1f} s"
    memory_note = f"all had a window after {kept.first:.0f} s"
    return [
        row(f"{name}: loop latency, 99 %", [most], unit="s", published=WINDOW, note=note),
        row(f"{name}: CPU", [kept.cpu], unit="% of a core"),
        row(f"{name}: memory", [kept.memory], unit="MiB", note=memory_note),
    ]


def watch_live(seconds: float, seed: int) -> LiveCost:
    """Watch ten targets for a while."""
    with ExitStack() as opened:
        server = opened.enter_context(EmbeddedTriton())
        opened.enter_context(attach(server.target, load=Load(rate=RATE), seed=seed))
        urls = []
        for _ in range(LIVE):
            port = opened.enter_context(Proxy(server.ports.grpc)).port
            urls.append(f"triton://127.0.0.1:{port}/mlp?metrics={server.ports.metrics}")
        daemon = opened.enter_context(keeping(urls, "observe"))
        wait_until(lambda: _windows(daemon) >= LIVE, 60)
        cpu = cpu_over(daemon.usage, seconds)
        loaded = any(word in entry.path for entry in daemon.usage.memory_maps() for word in HEAVY)
        return LiveCost(cpu, resident(daemon.usage), loaded)


def keep_many(mode: str, count: int, seconds: float) -> ManyTargets:
    """Keep simulated targets for a while after each had its first window."""
    urls = [f"sim://mlp?rate={RATE:g}&seed={number}" for number in range(count)]
    with keeping(urls, mode) as daemon:
        begun = time.monotonic()
        wait_until(lambda: _windows(daemon) >= count, 120, every=0.5)
        first = time.monotonic() - begun
        cpu, memory = cpu_over(daemon.usage, seconds), resident(daemon.usage)
        late = lateness(daemon.rows("SELECT target, time FROM window ORDER BY target, id"))
    return ManyTargets(late, cpu, memory, first)


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
    settings = {"slo": "mean=100ms", "mode": mode, "window": f"{WINDOW:g}s"}
    targets = [{"name": f"t{number}", "url": url, **settings} for number, url in enumerate(urls)]
    with daemon_file(targets) as path, DaemonProcess(path) as daemon:
        yield daemon


def _windows(daemon: DaemonProcess) -> int:
    """How many targets had a window."""
    found = daemon.rows("SELECT count(DISTINCT target) AS targets FROM window")
    return int(found[0]["targets"]) if found else 0
