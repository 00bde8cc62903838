"""A daemon in a folder of its own, with servers that are files."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.control.daemon.file_server import FileServer
from tests.waiting import LONGEST, eventually
from tuner.control.daemon.daemon import Daemon
from tuner.control.store.store import Store
from tuner.knobs import Configuration

TARGET = "  - {{name: {name}, url: 'sim://{path}', slo: p95=30ms, mode: {mode}, window: 2s{more}}}\n"


class Bed:
    """A folder with a file, servers and a store; daemons of it run in threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "servetune.yaml"
        self.said: list[str] = []
        self.errors: list[str] = []
        """What of it was said as an error."""
        self.servers: dict[str, FileServer] = {}
        self.now = time.time
        self.pace = 0.0

    def write(self, *targets: tuple[str, str, str]) -> None:
        """Write the file: (name, mode, further settings)."""
        lines = [
            TARGET.format(name=n, mode=m, more=f", {more}" if more else "", path=self.folder / n)
            for n, m, more in targets
        ]
        self.path.write_text("state: s.db\ntargets:\n" + "".join(lines))

    def connect(self, target: str, grids: object = None) -> FileServer:
        """What adapters' `connect` is replaced by."""
        name = Path(urlsplit(target).path).name
        self.servers[name] = FileServer(self.folder / name, target)
        self.servers[name].pace = self.pace
        return self.servers[name]

    def daemon(self, windows: int = 0) -> Daemon:
        return Daemon(
            self.path,
            windows=windows,
            fast=True,
            now=self.now,
            say=self.say,
        )

    def say(self, name: str, sentence: str, level: int = logging.INFO) -> None:
        """Keep what the daemon logs."""
        self.said.append(f"{name}: {sentence}")
        if level >= logging.ERROR:
            self.errors.append(self.said[-1])

    def run(self, windows: int) -> Daemon:
        """Run to the end, and return the daemon."""
        keeper = self.daemon(windows)
        keeper.run()
        return keeper

    def store(self) -> Store:
        return Store(self.folder / "s.db", reading=True)

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        store = self.store()
        try:
            return [dict(row) for row in store.rows(query, *values)]
        finally:
            store.close()

    def running(self, name: str = "a") -> Configuration:
        return FileServer(self.folder / name).current()


class Running:
    """A daemon in a thread of its own."""

    def __init__(self, bed: Bed) -> None:
        self.daemon = bed.daemon()
        self._thread = threading.Thread(target=self.daemon.run)

    def __enter__(self) -> Daemon:
        self._thread.start()
        eventually(lambda: len(self.daemon.workers) == len(self.daemon.config.targets))
        return self.daemon

    def __exit__(self, *_: object) -> None:
        self.daemon.stop()
        self._thread.join(LONGEST)
        assert not self._thread.is_alive()
