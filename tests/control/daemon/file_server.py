"""A pretended server that outlives the process: what it runs stands in a file, and time is virtual."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.builders import SPACE, configuration
from tuner.adapters import ApplyReport, Counters, Description
from tuner.errors import Unreachable
from tuner.files.storage import write_atomically
from tuner.knobs import Configuration
from tuner.profiler.source import ClientSample, HostReading

RATE = 200.0


class FileServer:
    """Backend, clock, host and clients in one; ``file://PATH``.

    Args:
        path: What it runs; `away` beside it (``PATH.away``) makes it unreachable.
        target: What it was called by.
    """

    space = SPACE
    cores = 2.0
    rate = RATE
    quiet = True
    pace = 0.0
    """How long a pause really takes, s: a daemon that never pauses leaves others no processor."""

    def __init__(self, path: Path, target: str = "file://x") -> None:
        self.path = path
        self.target = target
        self.time = 0.0
        self.before_change: Callable[[], object] = lambda: None
        self.after_change: Callable[[], object] = lambda: None
        if not path.exists():
            self.set(configuration())

    def set(self, wanted: Configuration) -> None:
        """Change it, as somebody with another tool would."""
        write_atomically(self.path, json.dumps(dict(wanted)))

    def latency(self, running: Configuration) -> float:
        """Best with a batch of 8 and two instances; the SLO of 30 ms is broken far from it."""
        steps = SPACE.distance(SPACE.encode(SPACE.nearest(running)), SPACE.encode(configuration(8, 0.002, 2)))
        return 0.010 + 0.010 * steps

    def describe(self) -> Description:
        return Description(
            target=self.target, server="file", version="1", model="m", writable=True, quantiles=True
        )

    def current(self) -> Configuration:
        if self.path.with_name(self.path.name + ".away").exists():
            raise Unreachable("no answer")
        return Configuration({k: float(v) for k, v in json.loads(self.path.read_text()).items()})

    def apply(self, wanted: Configuration) -> ApplyReport:
        running = self.current()
        self.before_change()
        self.set(wanted)
        self.after_change()
        self.time += 0.3
        cost = SPACE.apply_cost(running, wanted)
        return ApplyReport(
            configuration=wanted, changed=wanted != running, cost=cost, seconds=0.3, settle=1.0
        )

    def counters(self) -> Counters:
        self.current()
        done = int(self.time * RATE)
        return Counters(
            time=self.time, requests=done, failures=0, latency=0.01 * done, queue=0.0, compute=0.01 * done,
            inferences=done, batch_counts=np.array([0, done]), batch_seconds=np.array([0.0, 0.01 * done]),
        )  # fmt: skip

    def profile(self) -> None:
        return None

    def close(self) -> None:
        pass

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        time.sleep(self.pace)

    def set_rate(self, rate: float) -> None:
        pass

    def sample(self, start: float, end: float) -> ClientSample:
        times = np.arange(start, end, 1 / RATE)
        latency = np.full(times.size, self.latency(self.current()))
        late = np.full(times.size, 0.0 if self.quiet else 1.0)  # as on a machine that others use, too
        return ClientSample(intended=times, latency=latency, failed=0, lateness=late)

    def read(self) -> HostReading:
        return HostReading(time=self.time, server=self.time, own=0.0, total=self.time)
