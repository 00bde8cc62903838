"""Runs a daemon as a process of its own, and reads its store."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import psutil

from tuner.control.store.store import Store
from tuner.errors import StorageError
from tuner.experiments.daemon.file import STATE
from tuner.knobs import Configuration

__all__ = ["DaemonProcess", "Seen", "wait_until"]

Found = TypeVar("Found")
PATIENCE = 60.0
"""How long the daemon may take to stop after SIGTERM, s."""


class Seen(NamedTuple):
    """The state of one target in the store; empty where the store cannot be read."""

    file: int
    """The inode of the store, which changes when a damaged store is replaced."""
    window: int
    """Number of its newest row of a window; 0 before the first."""
    running: Configuration | None
    last_good: Configuration | None


class DaemonProcess:
    """A ``tuner daemon`` that can be started, stopped and killed.

    Args:
        path: Its configuration file. A file ``PATH.clock`` beside it holds the error of its clock, s.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path.with_name(STATE)
        self.lines: list[str] = []
        """The lines that it has printed so far."""
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> DaemonProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.signal(signal.SIGCONT)
        self.stop()

    @property
    def pid(self) -> int:
        """Its process id; 0 while it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    @property
    def usage(self) -> psutil.Process:
        """The process, whose use of CPU and memory can be measured."""
        return psutil.Process(self.pid)

    def start(self) -> None:
        """Start the process."""
        command = [sys.executable, "-u", "-m", "tuner.experiments.daemon.keeper", str(self.path)]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,  # Ctrl-C is for us, and we end it in good order
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def stop(self) -> int:
        """Stop it with SIGTERM; return its exit code."""
        self.signal(signal.SIGTERM)
        return self._gone()

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.signal(signal.SIGKILL)
        self._gone()

    def signal(self, number: int) -> None:
        """Send it a signal if it is running."""
        if self.pid:
            self._process.send_signal(number)  # type: ignore[union-attr]  # there is one if it has a pid

    def said(self, word: str, since: int = 0) -> list[str]:
        """Return the lines with a word, without the first ``since`` of all lines."""
        return [line for line in self.lines[since:] if word in line]

    def rows(self, query: str, *values: object) -> list[Any]:
        """Query its store; a store that cannot be read has no rows."""
        return self._asked(lambda store: store.rows(query, *values), [])

    def _asked(self, ask: Callable[[Store], Found], otherwise: Found) -> Found:
        try:
            with closing(Store(self.state, reading=True)) as store:
                return ask(store)
        except StorageError:
            return otherwise

    def seen(self, target: str) -> Seen:
        """Return what its store says of a target."""
        file = self.state.stat().st_ino if self.state.exists() else 0

        def ask(store: Store) -> Seen:
            row = store.row(
                "SELECT running, last_good, (SELECT coalesce(max(id), 0) FROM window "
                "WHERE target = target.id) AS newest FROM target WHERE name = ? ORDER BY id DESC",
                target,
            )
            if row is None:
                return Seen(file, 0, None, None)
            good = store.configuration(row["last_good"]) if row["last_good"] else None
            return Seen(file, row["newest"], store.configuration(row["running"]), good)

        return self._asked(ask, Seen(file, 0, None, None))

    def usable(self, target: str, since: Seen) -> bool:
        """Return whether an undisturbed window that kept the SLO has been stored since then."""
        after = since.window if self.seen(target).file == since.file else 0
        return bool(
            self.rows(
                "SELECT window.id FROM window JOIN target ON target.id = window.target WHERE name = ? "
                "AND window.id > ? AND disturbed = '' AND cost IS NOT NULL AND kept LIMIT 1",
                target,
                after,
            )
        )

    @property
    def address(self) -> str:
        """Where its web server listens now; empty if it does not."""
        said = self.said("listens at ")
        return said[-1].partition("listens at ")[2].split()[0].rstrip(";,") if said else ""

    def up(self, target: str) -> bool:
        """Return whether its metrics say that a target is measured at present."""
        with urllib.request.urlopen(f"{self.address}/metrics", timeout=10) as answer:
            page = answer.read().decode()
        return f'servetune_target_up{{target="{target}"}} 1.0' in page

    def applying(self) -> bool:
        """Return whether a change is in progress."""
        return bool(self.rows("SELECT id FROM decision WHERE outcome = 'applying' LIMIT 1"))

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.lines += ["-- begun"]
        for line in process.stdout:
            self.lines.append(line.rstrip("\n"))

    def _gone(self) -> int:
        process, reader = self._process, self._reader
        assert process is not None
        assert reader is not None
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        reader.join(5)
        if process.stdout is not None:
            process.stdout.close()
        return code


def wait_until(condition: Callable[[], bool], seconds: float, every: float = 0.02) -> bool:
    """Wait until a condition holds, for a number of seconds at most; return whether it does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every)
    return True
