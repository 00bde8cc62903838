"""Faults of the store: damaged, deleted, or used by two daemons."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np

from tuner.control.store.order_book import pause, resume
from tuner.control.store.store import Store
from tuner.errors import TunerError
from tuner.experiments.daemon.bed import TARGET, Bed
from tuner.experiments.daemon.kinds.kind import expect, kind
from tuner.experiments.daemon.process import wait_until

__all__ = ["KINDS"]

HEADER = 100
"""Bytes by which a file says whose it is: a damaged one without them is nobody's, and is left alone."""


def resume_target(bed: Bed) -> None:
    """Resume the target, which is paused since its store was lost."""

    def resumed() -> bool:
        try:
            with closing(Store(bed.daemon.state, existing=True)) as store:
                resume(store, TARGET)
        except TunerError:  # it is not there yet
            return False
        return True

    wait_until(resumed, 4 * bed.window, every=0.5)


@kind(
    "state file corrupted while running",
    promise="it is renamed; learning starts again, orders are carried over",
)
def _state_corrupted(bed: Bed, rng: np.random.Generator) -> str:
    """Another program overwrites the store while the daemon uses it."""
    _scribble(bed.daemon.state, rng)
    time.sleep(bed.window)
    return "while it ran"


@kind(
    "state file found corrupted",
    promise="it is renamed; targets whose orders are lost start paused",
    after=resume_target,
)
def _state_found_corrupted(bed: Bed, rng: np.random.Generator) -> str:
    bed.daemon.stop()
    _scribble(bed.daemon.state, rng, HEADER)
    bed.daemon.start()
    return "between two lives"


@kind("store lost while paused", promise="the target stays paused until it is resumed", after=resume_target)
def _lost_while_paused(bed: Bed, rng: np.random.Generator) -> str:
    """Somebody deletes or overwrites the store of a paused target, whether the daemon runs or not."""
    with closing(Store(bed.daemon.state, existing=True)) as store:
        pause(store, TARGET, "a release")
    expect(wait_until(lambda: _held(bed), 4 * bed.window), "the target was not paused")
    lines, running = len(bed.daemon.lines), bed.running()
    form = str(rng.choice(["deleted", "overwritten", "deleted while it was down"]))
    if form == "overwritten":
        _scribble(bed.daemon.state, rng)
    elif form == "deleted":
        bed.daemon.state.unlink()
    else:
        bed.daemon.stop()
        bed.daemon.state.unlink()
        bed.daemon.start()
    words = "all targets are paused" if form.endswith("down") else f"orders were carried over: {TARGET}"
    expect(
        wait_until(lambda: bool(bed.daemon.said(words, lines)), 6 * bed.window), f"{form}: nothing was said"
    )
    expect(wait_until(lambda: _held(bed), 6 * bed.window), f"{form}: the target is not paused any more")
    time.sleep(2 * bed.window)
    changes = bed.daemon.rows("SELECT id FROM decision WHERE action != 'hold'")
    expect(not changes, f"{form}: {len(changes)} changes were decided while it was paused")
    expect(bed.running() == running, f"{form}: the server was changed while it was paused")
    return form


def _held(bed: Bed) -> bool:
    """Whether the newest decision was to do nothing, because the target is paused."""
    rows = bed.daemon.rows("SELECT reason FROM decision ORDER BY id DESC LIMIT 1")
    return bool(rows) and "paused" in rows[0]["reason"]


@kind(
    "second daemon on the same store", promise="it ends with exit code 2 and one sentence; the first goes on"
)
def _second_daemon(bed: Bed, rng: np.random.Generator) -> str:
    """A second daemon finds the store in another way than the first did."""
    state = bed.daemon.state
    form = str(rng.choice(["a linked folder", "a link", "a hard link", "no lock file"]))
    with tempfile.TemporaryDirectory(prefix="servetune-second-", dir=state.parent) as folder:
        name = Path(folder) / "other.db"
        if form == "a linked folder":
            (Path(folder) / "linked").symlink_to(state.parent)
            name = Path(folder) / "linked" / state.name
        elif form == "a link":
            name.symlink_to(state)
        elif form == "a hard link":
            name.hardlink_to(state)
        else:
            state.with_name(f"{state.name}.lock").unlink()
            name = state
        file = Path(folder) / "servetune.yaml"
        file.write_text(json.dumps(json.loads(bed.daemon.path.read_text()) | {"state": str(name)}))
        command = [sys.executable, "-m", "tuner", "daemon", str(file)]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            expect(False, f"{form}: two daemons ran")
    expect(ended.returncode == 2, f"{form}: exit code {ended.returncode}")
    expect("Traceback" not in ended.stdout + ended.stderr, f"{form}: a traceback")
    sentence = (ended.stderr.strip().splitlines() or [""])[-1]
    expect(bed.daemon.pid, f"{form}: the first daemon ended")
    return f"{form}: {sentence.replace(str(state.parent), '...')}"


def _scribble(path: Path, rng: np.random.Generator, first: int = 0) -> None:
    """Overwrite most of a file and of its log with random bytes.

    Args:
        path: The file.
        rng: Draws the bytes, and the place in the first page where they begin.
        first: The first byte that may be overwritten.
    """
    for name in (path, path.with_name(f"{path.name}-wal")):
        if not name.exists() or (size := name.stat().st_size) == 0:
            continue
        begin = int(rng.integers(first, 4096))
        with name.open("r+b") as file:
            file.seek(begin)
            file.write(rng.bytes(max(size - begin, 100)))


KINDS = (_state_corrupted, _state_found_corrupted, _lost_while_paused, _second_daemon)
