"""Faults of operators: files with mistakes, signals at odd moments, and the scripts that they declare."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil

from tuner.adapters.tfserving.embedded import EmbeddedTFServing, TFServingOptions
from tuner.control.store.order_book import pause, pin
from tuner.control.store.store import Store
from tuner.experiments.daemon.bad_files import BAD_FILES, POLICY
from tuner.experiments.daemon.bed import GRIDS, TARGET, Bed
from tuner.experiments.daemon.kinds.kind import expect, kind
from tuner.experiments.daemon.kinds.store import resume_target
from tuner.experiments.daemon.process import wait_until

__all__ = ["KINDS"]

MEGABYTE = 1e6
MOST_MEMORY = 300 * MEGABYTE
"""By which the daemon may grow while it reads bad files, bytes."""
RESTARTED = "restarted"
"""The target whose server a script restarts."""
SCRIPT = """#!/bin/sh
[ $# -gt 0 ] || exit 2
for word in "$@"; do
    case "$word" in batch_threads=*) threads="${{word#*=}}" ;; inter_op=*|intra_op=*) ;; *) exit 2 ;; esac
done
echo "num_batch_threads {{ value: $threads }}" > "{home}/batching.pbtxt"
sleep 600 &
echo $! > "{folder}/child"
touch "{home}/wanted"
"""
MOMENT = 15.0
"""Longest wait until a file was read, s: the machine is shared."""


@kind("SIGHUP with bad files", promise="each is refused in a sentence; the daemon goes on as it is")
def _bad_files(bed: Bed, rng: np.random.Generator) -> str:
    """The daemon's file is replaced by one bad file after the other, and read again each time."""
    path, process, before = bed.daemon.path, bed.daemon.pid, bed.daemon.usage.memory_info().rss
    good, names = path.read_bytes(), rng.permutation(sorted(BAD_FILES))
    try:
        for name in names:
            BAD_FILES[name](path)
            refused = _reloaded(bed, "was not reloaded")
            expect(bed.daemon.pid == process, f"{name}: the daemon ended")
            expect(refused, f"{name}: was not refused")
            grown = bed.daemon.usage.memory_info().rss - before
            expect(grown < MOST_MEMORY, f"{name}: {grown / MEGABYTE:.0f} MB more memory")
    finally:
        path.unlink(missing_ok=True)
        path.write_bytes(good)
        shutil.rmtree(path.parent / POLICY, ignore_errors=True)
    expect(_reloaded(bed, "was reloaded"), "a good file was not read")
    return f"{len(names)} files"


def _reloaded(bed: Bed, words: str) -> bool:
    """Let the daemon read its file again; return whether it says so in these words."""
    lines = len(bed.daemon.lines)
    bed.daemon.signal(signal.SIGHUP)
    return wait_until(lambda: bool(bed.daemon.said(words, lines)), MOMENT)


@kind("SIGHUP in the first second", promise="the daemon starts, and reads its file")
def _hung_up_at_start(bed: Bed, rng: np.random.Generator) -> str:
    """A second daemon, of a simulated target, gets SIGHUP from its first moments on."""
    with tempfile.TemporaryDirectory(prefix="servetune-early-", dir=bed.daemon.path.parent) as folder:
        file = Path(folder) / "servetune.yaml"
        file.write_text("targets: [{name: a, url: 'sim://mlp', slo: p95=30ms, window: 200ms}]\n")
        command = [sys.executable, "-u", "-m", "tuner", "daemon", str(file), "--windows", "8"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        wait_until(lambda: process.poll() is not None or _handles_hang_up(process.pid), MOMENT, every=0.001)
        sent = 0
        while process.poll() is None and sent < 300:
            process.send_signal(signal.SIGHUP)
            sent += 1
            time.sleep(rng.uniform(0, 0.02))
        said, _ = process.communicate(timeout=60)
    expect(process.returncode == 0, f"exit code {process.returncode} after {sent} SIGHUPs: {said[-300:]}")
    expect("Traceback" not in said, f"a traceback: {said[-300:]}")
    return f"{sent} SIGHUPs, {said.count('was reloaded')} times read again"


def _handles_hang_up(pid: int) -> bool:
    """Whether a process no longer ends by SIGHUP; Python itself takes a moment to start."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    masks = [
        int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigIgn", "SigCgt"))
    ]
    return any(mask & 1 << signal.SIGHUP - 1 for mask in masks)


@kind(
    "tuner run ended in the middle",
    promise="with --restore the server runs what it ran before",
    after=resume_target,
)
def _run_ended(bed: Bed, rng: np.random.Generator) -> str:
    """While the daemon is paused, `tuner run --restore` tunes the server, and is ended in the middle."""
    with closing(Store(bed.daemon.state, existing=True)) as store:
        pause(store, TARGET, "a run")
    quiet = wait_until(lambda: not bed.daemon.applying(), 4 * bed.window)
    time.sleep(bed.window)  # the window in which the daemon reads the order
    expect(quiet, "the daemon did not pause")
    before, form = bed.running(), str(rng.choice(["SIGHUP", "SIGTERM", "a closed pipe"]))
    with tempfile.TemporaryDirectory(prefix="servetune-run-") as folder:
        knobs = [
            word for name, grid in GRIDS.items() for word in ("--knob", f"{name}={','.join(map(str, grid))}")
        ]
        command = [
            sys.executable,
            "-m",
            "tuner",
            "run",
            bed.server.target,
            "--slo",
            "mean=200ms",
            "--restore",
        ]
        process = subprocess.Popen(
            [*command, "--window", "1s", "--out", folder, *knobs],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=_as_in_a_terminal,  # noqa: PLW1509 - all it does is to set a signal
        )  # fmt: skip
        changed = wait_until(lambda: bed.running() not in (None, before), 60, every=0.05)
        time.sleep(rng.uniform(0, 1))
        assert process.stdout is not None
        assert process.stderr is not None
        if form == "a closed pipe":
            process.stdout.close()
        else:
            process.send_signal(getattr(signal, form))
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            expect(False, f"{form}: the run did not end")
        said = process.stderr.read()
    expect("Traceback" not in said, f"{form}: {said[-300:]}")
    expect(bed.running() == before, f"{form}: the server was left with {bed.running()}")
    return f"{form}, exit code {code}, {'after' if changed else 'before'} its first change"


def _as_in_a_terminal() -> None:
    """Let SIGHUP end the process to come, even if `nohup` started the experiment."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@kind(
    "restart script with a background child",
    promise="the restart has ended when the script has; the child lives on",
)
def _restarted_with_a_child(bed: Bed, rng: np.random.Generator) -> str:
    """A second target is restarted by a script whose child goes on and keeps the script's output open."""
    kept, threads = bed.daemon.path.read_text(), int(rng.choice([1, 3, 4]))
    with EmbeddedTFServing(options=TFServingOptions(batch_threads=2)) as server, _restarter(server) as script:
        target = {
            "name": RESTARTED,
            "url": f"{server.target}&restart={script}",
            "slo": "mean=200ms",
            "mode": "apply",
            "window": f"{bed.window}s",
            "knobs": {"batch_threads": [1, 2, 3, 4]},
        }
        content = json.loads(kept)
        bed.daemon.path.write_text(json.dumps(content | {"targets": [*content["targets"], target]}))
        try:
            expect(_reloaded(bed, "was reloaded"), "the file was not read")
            expect(wait_until(lambda: bed.daemon.seen(RESTARTED).window >= 1, 60), "it is not measured")
            with closing(Store(bed.daemon.state, existing=True)) as store:
                pin(store, RESTARTED, {"batch_threads": threads})
            begun = time.monotonic()
            done = wait_until(lambda: _running(bed, "batch_threads") == threads, 60, every=0.1)
            seconds = time.monotonic() - begun
        finally:
            bed.daemon.path.write_text(kept)
            over = _reloaded(bed, "was reloaded")
        child = int(script.with_name("child").read_text())
        expect(done, f"it has {_running(bed, 'batch_threads')} batch threads instead of {threads}")
        expect(over, "the target could not be stopped")
        expect(psutil.pid_exists(child), "the child of the script was ended")
        return f"{threads} batch threads {seconds:.1f} s after the order"


def _running(bed: Bed, knob: str) -> float | None:
    """Return the value of a knob of the restarted server, as the daemon knows it."""
    running = bed.daemon.seen(RESTARTED).running
    return None if running is None else running[knob]


@contextmanager
def _restarter(server: EmbeddedTFServing) -> Iterator[Path]:
    """Yield a script that has a server restarted, as a service manager does it."""
    over, home = threading.Event(), server.base_path.parents[1]

    def restart() -> None:
        while not over.wait(0.05):
            if (wanted := home / "wanted").exists():
                wanted.unlink()
                server.restart()

    with tempfile.TemporaryDirectory(prefix="servetune-restart-") as folder:
        script = Path(folder) / "restart"
        script.write_text(SCRIPT.format(home=home, folder=folder))
        script.chmod(0o755)
        thread = threading.Thread(target=restart, daemon=True)
        thread.start()
        try:
            yield script
        finally:
            over.set()
            thread.join(60)
            with suppress(OSError, ValueError):
                os.kill(int((Path(folder) / "child").read_text()), signal.SIGKILL)


KINDS = (_bad_files, _hung_up_at_start, _run_ended, _restarted_with_a_child)
