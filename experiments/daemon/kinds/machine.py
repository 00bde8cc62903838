"""Faults of the machine: its disk and its clock."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tuner.experiments.daemon.bed import Bed
from tuner.experiments.daemon.kinds.kind import expect, kind
from tuner.experiments.daemon.process import wait_until

__all__ = ["KINDS"]

MONTH = 31 * 86400.0
"""Longer than the store keeps what is over, s."""


@kind("disk full", promise="a decision that cannot be stored is not carried out")
def _disk_full(bed: Bed, rng: np.random.Generator) -> str:
    """Every write of the daemon to a file fails."""
    lines, seconds = len(bed.daemon.lines), rng.uniform(2, 3) * bed.window
    with _full_disk(bed):
        time.sleep(seconds)
    return f"{len(bed.daemon.said('is lost', lines))} windows were lost in {seconds:.1f} s"


@kind(
    "disk full over several windows", promise="the end of the change under way is stored when there is room"
)
def _disk_full_for_long(bed: Bed, rng: np.random.Generator) -> str:
    """From the middle of a change on, so that its end cannot be stored, and neither can the next windows."""
    found = bed.await_change()
    lines, seconds = len(bed.daemon.lines), rng.uniform(4, 5) * bed.window
    with _full_disk(bed):
        time.sleep(seconds)
        left = bed.daemon.rows("SELECT id FROM decision WHERE outcome = 'applying'")
    lost = len(bed.daemon.said("is lost", lines))
    expect(lost >= 2, f"{lost} windows were lost in {seconds:.1f} s")
    begun = "a change was open" if found and left else "no change was open"
    return f"{begun}; {lost} windows were lost in {seconds:.1f} s"


@contextmanager
def _full_disk(bed: Bed) -> Iterator[None]:
    """Let every write of the daemon to a file fail for a while, as on a full disk."""
    limits = resource.prlimit(bed.daemon.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(bed.daemon.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(bed.daemon.pid, resource.RLIMIT_FSIZE, limits)


@kind("clock jump", promise="nothing depends on the time of day but what is stored with it")
def _clock_jump(bed: Bed, rng: np.random.Generator) -> str:
    seconds = float(rng.choice([-86400, -3600, -60, 60, 3600, 86400]))
    _set_clock(bed, seconds)
    time.sleep(rng.uniform(0, bed.window))
    return f"by {seconds:+g} s"


@kind(
    "clock a month later after kill -9 in an apply", promise="what was under way is resolved, not forgotten"
)
def _clock_a_month_later(bed: Bed, rng: np.random.Generator) -> str:
    """The daemon is killed in the middle of a change, and started when all that it stored is old."""
    found = bed.await_change()
    time.sleep(rng.uniform(0, 0.05))
    bed.daemon.kill()
    left = [row["id"] for row in bed.daemon.rows("SELECT id FROM decision WHERE outcome = 'applying'")]
    _set_clock(bed, MONTH)
    bed.daemon.start()

    def ended() -> bool:
        rows = [
            row for id in left for row in bed.daemon.rows("SELECT outcome FROM decision WHERE id = ?", id)
        ]
        return [row["outcome"] in ("applied", "interrupted") for row in rows] == [True] * len(left)

    expect(wait_until(ended, 4 * bed.window), f"decisions {left} have no end")
    return "a change was under way" if found and left else "a change had just ended"


def _set_clock(bed: Bed, seconds: float) -> None:
    """Make the daemon's time of day wrong."""
    Path(f"{bed.daemon.path}.clock").write_text(str(seconds))


KINDS = (_disk_full, _disk_full_for_long, _clock_jump, _clock_a_month_later)
