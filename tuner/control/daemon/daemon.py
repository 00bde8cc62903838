"""The daemon: keeps the targets of a file inside their SLOs, each in a thread of its own.

A target is a model on a server with an SLO. Targets share the store and nothing else, so that a target which
hangs or fails disturbs no other.

=======================  ===================================================================================
event                    what the daemon does
=======================  ===================================================================================
the file is reloaded     starts new targets, stops those that are gone, restarts those whose settings changed,
                         and leaves all others alone. A file with a mistake changes nothing
the daemon is stopped    finishes every change under way; a change on probation is undone, unless it is the
                         best known
the daemon is killed     the next daemon finds in the store which change was under way, and asks the server
                         which configuration it runs
the store is damaged     at the start or later: renames it and starts with an empty one. What servers run is
                         read from the servers, so only what was learned is lost
another daemon runs      does not start: each would undo what the other does
=======================  ===================================================================================
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Protocol

from tuner.control.daemon.config import DaemonConfig, TargetConfig
from tuner.control.daemon.worker import Worker, WorkerReport
from tuner.control.store.store import Store
from tuner.errors import InvalidInput, StorageError, TunerError
from tuner.yaml_file import load_yaml

__all__ = ["Daemon", "Frontend"]

log = logging.getLogger(__name__)

TICK = 0.2
"""Pause between two looks at signals and threads, s."""
PRUNE_EVERY = 3600.0
"""Time between two deletions of what is older than ``keep``, s."""
STAGGER = 0.01
"""Pause between the starts of two targets, s: the windows of a thousand must not end at the same moment."""
CHECK_EVERY = 2.0
"""Time between two checks of the store's file, s."""
PATIENCE = 120.0
"""How long a target may take to finish a change when the daemon stops, s."""


class Frontend(AbstractContextManager["Frontend"], Protocol):
    """Shows a daemon to people and programs outside it, such as a web server.

    The daemon enters it when its store is open, and leaves it before the store is closed. It may do so
    several times.
    """

    def report(self, name: str, report: WorkerReport) -> None:
        """Take in one turn of a target. Called in the thread of the target's worker."""
        ...


class Daemon:
    """Keeps the targets of a file until stopped.

    Life: `run` blocks; `stop` and `reload` may be called from signal handlers and other threads.

    Args:
        path: The file.
        now: Seconds since 1970.
        fast: Let simulated targets run as fast as they can.
        windows: Number of windows after which each target ends; 0 goes on.
        say: Receives the name of a target (empty for the daemon itself) and a sentence for the log.

    Raises:
        InvalidInput: The file has a mistake.
    """

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], float] = time.time,
        fast: bool = False,
        windows: int = 0,
        say: Callable[[str, str], None] = lambda name, sentence: log.info("%s: %s", name, sentence),
    ) -> None:
        self.config = load_yaml(path, DaemonConfig)
        self._path = path
        self._now = now
        self._fast = fast
        self._windows = windows
        self._say = say
        self._workers: dict[str, tuple[Worker, threading.Thread]] = {}
        self._ticked = time.monotonic()
        self._frontend: Frontend | None = None
        self._stopping = self._reloading = False  # only assigned to: safe in a signal handler

    @property
    def workers(self) -> dict[str, Worker]:
        """The worker of each target, by name."""
        return {name: worker for name, (worker, _) in dict(self._workers).items()}  # a copy: threads ask

    @property
    def silence(self) -> float:
        """Time since the daemon last looked after its signals and threads, s; long only if it hangs."""
        return time.monotonic() - self._ticked

    def stop(self) -> None:
        """Ask the daemon to finish changes under way and return from `run`."""
        self._stopping = True

    def reload(self) -> None:
        """Ask the daemon to read its file again."""
        self._reloading = True

    def run(self, frontend: Frontend | None = None) -> None:
        """Keep the targets; return when stopped, or when all targets had their windows.

        Args:
            frontend: Shows the daemon to people and programs, if anything does.

        Raises:
            StorageError: The store cannot be opened.
            InvalidInput: Another daemon uses the store, or the frontend cannot listen.
        """
        self._frontend = frontend
        with _only_one(self.config.state):
            while damage := self._run():
                self._say("", f"{damage}; all targets are started again")

    def _run(self) -> str:
        """Keep the targets until the daemon ends (return "") or the store is damaged (return how)."""
        with self._open() as store, self._frontend or nullcontext():
            try:
                for number, target in enumerate(self.config.targets):
                    self._begin(target, store, delay=0.0 if self._fast else number * STAGGER)
                damage = self._wait(store)
            finally:
                self._end(list(self._workers))
        if store.senseless:  # SQLite finds nothing wrong with the file, so opening it again would not help
            self._say("", self._put_aside(damage))
        return damage

    def _wait(self, store: Store) -> str:
        """Look after signals and the store; return "" when the daemon ends, or how the store is damaged."""
        pruned, checked = -PRUNE_EVERY, time.monotonic()
        while not self._stopping:
            self._ticked = time.monotonic()
            if self._reloading:
                self._reloading = False
                self._reload(store)
            if time.monotonic() - pruned >= PRUNE_EVERY:
                pruned = time.monotonic()
                self._prune(store)
            if time.monotonic() - checked >= CHECK_EVERY:
                checked = time.monotonic()
                if damage := store.damage():
                    return damage
            if self._windows and not any(thread.is_alive() for _, thread in self._workers.values()):
                return ""
            time.sleep(TICK)
        return ""

    def _begin(self, target: TargetConfig, store: Store, *, delay: float = 0.0) -> None:
        if target.name in self._workers:  # two workers would undo what the other does
            self._say(target.name, "still hangs; it is started when the file is read again")
            return
        worker = Worker(
            target,
            store,
            now=self._now,
            fast=self._fast,
            windows=self._windows,
            say=self._say,
            watch=self._frontend.report if self._frontend is not None else None,
            delay=delay,
        )
        # A daemon thread: a server that hangs must not keep the interpreter from exiting.
        thread = threading.Thread(target=worker.run, name=f"target-{target.name}", daemon=True)
        self._workers[target.name] = (worker, thread)
        thread.start()

    def _end(self, names: list[str]) -> None:
        """Stop targets and wait for them together; one that hangs stays among the workers."""
        for name in names:
            self._workers[name][0].stop()
        deadline = time.monotonic() + PATIENCE
        for name in names:
            worker, thread = self._workers[name]
            thread.join(max(deadline - time.monotonic(), 0.0))
            if thread.is_alive():
                self._say(name, f"did not finish within {PATIENCE:.0f} s: {worker.phase}")
            else:
                del self._workers[name]

    def _reload(self, store: Store) -> None:
        """Read the file again and follow it. Whatever is wrong with the file, the daemon goes on."""
        try:
            config = load_yaml(self._path, DaemonConfig)
            if config.state != self.config.state:
                raise InvalidInput(
                    "state", f"differs from {self.config.state}, which is in use", "restart the daemon"
                )
            if config.http != self.config.http:
                raise InvalidInput("http", "has changed", "restart the daemon")
        except TunerError as error:
            self._say("", f"the file was not reloaded, everything stays as it was: {error}")
            return
        except Exception:  # the last net: a daemon that keeps servers must not end over a file
            log.exception("the file was not reloaded, everything stays as it was")
            return
        wanted = {target.name: target for target in config.targets}
        running = {name: worker.config for name, worker in self.workers.items()}
        over = [name for name, target in running.items() if wanted.get(name) != target]
        begun = [name for name, target in wanted.items() if running.get(name) != target]
        self._end(over)
        for name in begun:
            self._begin(wanted[name], store)
        self.config = config
        gone = ", ".join(name for name in over if name not in wanted) or "none"
        self._say("", f"the file was reloaded; started: {', '.join(begun) or 'none'}; stopped: {gone}")

    def _prune(self, store: Store) -> None:
        try:
            store.prune(self._now() - self.config.keep)
        except StorageError as error:
            self._say("", str(error))

    @contextmanager
    def _open(self) -> Iterator[Store]:
        """Open the store; rename one that is damaged, and start with an empty one."""
        path = self.config.state
        if not path.exists():
            _remove_log(path)  # SQLite would apply a log that is left over to the new file
        try:
            store = Store(path, now=self._now)
        except StorageError as error:
            if not path.is_file() or path.stat().st_size == 0 or not os.access(path, os.R_OK | os.W_OK):
                raise
            sentence = self._put_aside(str(error))
            store = Store(path, now=self._now)
            store.note(sentence)
            self._say("", sentence)
        try:
            yield store
        finally:
            store.close()

    def _put_aside(self, damage: str) -> str:
        """Rename a damaged store; return a sentence about it."""
        path = self.config.state
        aside = path.with_name(f"{path.name}.damaged-{datetime.fromtimestamp(self._now()):%Y%m%d-%H%M%S}")
        path.replace(aside)
        _remove_log(path)
        return f"{damage}; it was renamed to {aside.name}, and learning starts from nothing"


def _remove_log(path: Path) -> None:
    """Delete the write-ahead log of a store whose file is gone."""
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


@contextmanager
def _only_one(state: Path) -> Iterator[None]:
    """Hold the lock file beside a store; the kernel releases the lock when the process dies.

    Raises:
        InvalidInput: Another process holds the lock.
        StorageError: The lock file cannot be created.
    """
    path = state.with_name(state.name + ".lock")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StorageError(f"state {state}: {error.strerror}; choose another folder") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            other = os.read(descriptor, 20).decode(errors="replace").strip() or "unknown"
            raise InvalidInput("state", f"{state} is used by another daemon (process {other})") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
