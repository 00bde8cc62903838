"""Keeps many targets in one process, as a file says: a thread for each, one store, and no more in common.

=====================  =====================================================================================
what happens           what the daemon does
=====================  =====================================================================================
the file is reloaded   targets that are new are begun, those that are gone are left in good order, those that
                       were changed are left and begun anew; all others notice nothing. A file with a mistake
                       changes nothing
it is stopped          every change under way is finished; a change on probation is not left to itself
it is killed           the next one finds in the store what was going on, and asks the servers what they run
the store is damaged   when it begins, or while it runs: it is put aside, and a new one is begun: what servers
                       run is read from the servers
another one is there   it does not begin: two would undo what the other does
=====================  =====================================================================================
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
"""How often signals are looked after, s."""
PRUNE_EVERY = 3600.0
"""How often what is too old is forgotten, s."""
STAGGER = 0.01
"""Seconds between the beginnings of two targets: the windows of a thousand end one after the other."""
CHECK_EVERY = 2.0
"""How often it is looked whether the store is still whole, s."""
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
        windows: End by itself when each target has had so many; 0 goes on.
        say: Told the name of a target (empty: the daemon) and a sentence, about everything worth knowing.

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
        """What keeps each target, by name."""
        return {name: worker for name, (worker, _) in dict(self._workers).items()}  # asked by other threads

    @property
    def silence(self) -> float:
        """For how long nothing was looked after, s; short unless the daemon hangs."""
        return time.monotonic() - self._ticked

    def stop(self) -> None:
        """End soon, in good order."""
        self._stopping = True

    def reload(self) -> None:
        """Read the file again soon."""
        self._reloading = True

    def run(self, frontend: Frontend | None = None) -> None:
        """Keep the targets; returns when stopped, or when all had their windows.

        Args:
            frontend: Shows the daemon to the outside, if anything does.

        Raises:
            StorageError: The store cannot be opened.
            InvalidInput: Another daemon uses it, or its address.
        """
        self._frontend = frontend
        with _only_one(self.config.state):
            while damage := self._run():
                self._say("", f"{damage}; all targets are begun anew")

    def _run(self) -> str:
        """Keep the targets with one store; returns what became of it, or nothing when all is over."""
        with self._open() as store, self._frontend or nullcontext():
            try:
                for number, target in enumerate(self.config.targets):
                    self._begin(target, store, delay=0.0 if self._fast else number * STAGGER)
                damage = self._wait(store)
            finally:
                self._end(list(self._workers))
        if store.senseless:  # SQLite finds nothing wrong with it, and would open it again
            self._say("", self._put_aside(damage))
        return damage

    def _wait(self, store: Store) -> str:
        """Look after signals until stopped, or until the store is damaged: then say how."""
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
        if target.name in self._workers:  # two at once would undo what the other does
            self._say(target.name, "hangs still, and is begun anew when the file is read again")
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
        # Not waited for by the interpreter: a server that hangs must not keep the daemon from ending.
        thread = threading.Thread(target=worker.run, name=f"target-{target.name}", daemon=True)
        self._workers[target.name] = (worker, thread)
        thread.start()

    def _end(self, names: list[str]) -> None:
        """Stop targets, all at once, and wait for them; one that hangs stays among the workers."""
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
        try:
            config = load_yaml(self._path, DaemonConfig)
            if config.state != self.config.state:
                raise InvalidInput(
                    "state", f"is another file than {self.config.state}", "stop and begin anew"
                )
            if config.http != self.config.http:
                raise InvalidInput("http", "is not what it was", "stop and begin anew")
        except TunerError as error:
            self._say("", f"the file was not taken over, everything stays as it was: {error}")
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
        self._say("", f"the file was read again; begun: {', '.join(begun) or 'none'}; ended: {gone}")

    def _prune(self, store: Store) -> None:
        try:
            store.prune(self._now() - self.config.keep)
        except StorageError as error:
            self._say("", str(error))

    @contextmanager
    def _open(self) -> Iterator[Store]:
        """Open the store; one that is damaged is put aside."""
        path = self.config.state
        if not path.exists():
            _forget_log(path)  # which would be taken for that of the new file
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
        """Give a damaged store another name; returns a sentence about it."""
        path = self.config.state
        aside = path.with_name(f"{path.name}.damaged-{datetime.fromtimestamp(self._now()):%Y%m%d-%H%M%S}")
        path.replace(aside)
        _forget_log(path)
        return f"{damage}; it was put aside as {aside.name}, and everything is learned anew"


def _forget_log(path: Path) -> None:
    """Remove the write-ahead log of a store that is no longer there."""
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


@contextmanager
def _only_one(state: Path) -> Iterator[None]:
    """Hold the lock beside a store; the kernel lets go of it when the process dies.

    Raises:
        InvalidInput: Somebody else holds it.
        StorageError: It cannot be made.
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
