"""What watching costs: CPU and memory of ``tuner observe`` at one sample per second."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import psutil

from tuner.experiments.daemon.memory import cpu_over, resident
from tuner.experiments.frame.experiment import Answers, OneTaskExperiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.live.testbed import triton

__all__ = ["ObserveCost"]

RATE = 200.0


class WatcherCost(NamedTuple):
    """What the watching process used."""

    cpu: float
    """% of a core."""
    memory: float
    """MiB"""


@experiment(
    name="observe-cost",
    title="CPU and memory of tuner observe at one sample per second",
    minutes=2,
    live=True,
)
class ObserveCost(OneTaskExperiment[WatcherCost]):
    """Watches a loaded server from another process and accounts for that process."""

    seconds = Scaled(60, quick=5)

    def measure(self, _: None, seed: int) -> WatcherCost:
        with triton(RATE, seed=seed) as attachment:
            target = attachment.description.target
            command = [sys.executable, "-m", "tuner", "observe", target, "--every", "1s"]
            watcher = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            try:
                time.sleep(3.0)  # imports are not watching
                process = psutil.Process(watcher.pid)
                cost = WatcherCost(cpu_over(process, self.seconds), resident(process))
            finally:
                watcher.terminate()
                watcher.wait(10)
        self.report(f"seed {seed}: {cost.cpu:.2f} % of a core, {cost.memory:.0f} MB")
        return cost

    def rows(self, found: Answers[None, WatcherCost]) -> Iterator[Row]:
        cpu, memory = zip(*found[None], strict=True)
        note = "target: below"
        yield row("CPU of tuner observe", cpu, unit="% of a core", published=3.0, note=note)
        yield row("memory of tuner observe", memory, unit="MiB", published=120.0, note=note)

    def configuration(self) -> dict[str, Any]:
        return {"rate": RATE, "every": 1.0, "watched_seconds": self.seconds}
