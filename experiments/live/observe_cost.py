"""What watching costs: CPU and memory of ``tuner observe`` at one sample per second."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil

from tuner.experiments.frame.catalogue import Options
from tuner.experiments.frame.result import Result, row
from tuner.experiments.live.testbed import triton

__all__ = ["run"]

RATE = 200.0


def run(options: Options) -> Result:
    """Watch a loaded server from another process and account for that process."""
    seconds = 5 if options.quick else 60
    cpu, memory = [], []
    for seed in range(options.seeds):
        with triton(RATE, seed=seed) as attachment:
            command = [
                sys.executable,
                "-m",
                "tuner",
                "observe",
                attachment.description.target,
                "--every",
                "1s",
            ]
            watcher = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            try:
                time.sleep(3.0)  # imports are not watching
                process = psutil.Process(watcher.pid)
                before = process.cpu_times()
                time.sleep(seconds)
                after = process.cpu_times()
                used = after.user + after.system - before.user - before.system
                cpu.append(used / seconds * 100)
                memory.append(process.memory_info().rss / 2**20)
            finally:
                watcher.terminate()
                watcher.wait(10)
        options.report(f"seed {seed}: {cpu[-1]:.2f} % of a core, {memory[-1]:.0f} MB")
    return Result(
        experiment="observe-cost",
        seeds=options.seeds,
        configuration={"rate": RATE, "every": 1.0, "watched_seconds": seconds},
        rows=[
            row("CPU of tuner observe", cpu, unit="% of a core", published=3.0, note="target: below"),
            row("memory of tuner observe", memory, unit="MiB", published=120.0, note="target: below"),
        ],
    )
