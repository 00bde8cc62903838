"""How much CPU and memory a process uses, and by how much what is measured of it grows once it is warm."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import psutil

__all__ = ["cpu_over", "growth", "resident", "sampled"]

WARM_UP = 0.25
"""Share of the time after which nothing is expected to grow."""
EVERY = 0.25
"""s."""


def growth(values: Sequence[float]) -> float:
    """Return by how many percent a measured quantity grew from the end of the warm-up to the end."""
    begin, some = int(len(values) * WARM_UP), max(len(values) // 10, 1)
    return 100 * (median(values[-some:]) / median(values[begin : begin + some]) - 1)


def resident(process: psutil.Process) -> float:
    """Return the memory that a process uses, MiB."""
    return float(process.memory_info().rss / 2**20)


def cpu_over(process: psutil.Process, seconds: float) -> float:
    """Wait for a while; return the CPU that a process used meanwhile, % of a core."""
    before, begun = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after, taken = process.cpu_times(), time.monotonic() - begun
    return float(100 * (after.user + after.system - before.user - before.system) / taken)


@contextmanager
def sampled() -> Iterator[list[float]]:
    """Look at this process's memory again and again for the length of a block; yields what was seen, MiB."""
    process, done, seen = psutil.Process(), threading.Event(), list[float]()

    def look() -> None:
        while not done.wait(EVERY):
            seen.append(resident(process))

    thread = threading.Thread(target=look, name="memory", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()
        seen.append(resident(process))
