"""The neighbour of a live server: a process that keeps a core busy, and ends."""

from __future__ import annotations

import time

import psutil

from tuner.experiments.live.shared_machine import busy_core


def test_a_neighbour_is_busy_until_it_ends() -> None:
    """It uses processor time, and nothing of it is left behind."""
    before = set(psutil.Process().children())
    with busy_core():
        (process,) = set(psutil.Process().children()) - before
        deadline = time.monotonic() + 30.0
        while sum(process.cpu_times()[:2]) < 0.05 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert sum(process.cpu_times()[:2]) >= 0.05

    assert not process.is_running()
