"""The neighbour of a live server: a process that keeps a core busy, and ends."""

from __future__ import annotations

from collections.abc import Iterator

import psutil

from tests.waiting import eventually
from tuner.experiments.live.neighbours import LOOP, busy_core


def loops() -> Iterator[psutil.Process]:
    """Processes that run the loop."""
    for process in psutil.process_iter(["cmdline"]):
        if LOOP in (process.info["cmdline"] or []):
            yield process


def test_a_neighbour_is_foreign_and_busy_until_it_ends() -> None:
    """It uses processor time, is no descendant of ours, and nothing of it is left behind."""
    before = set(loops())
    with busy_core():
        (process,) = set(loops()) - before
        eventually(lambda: sum(process.cpu_times()[:2]) >= 0.05)
        assert process not in psutil.Process().children(recursive=True)

    eventually(lambda: process not in loops())
