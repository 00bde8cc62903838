"""The daemon: keeps the targets of a file inside their SLOs, each in a thread of its own.

A target is a model on a server with an SLO. Targets share nothing but the store and a note of who turns which
model, so that one which hangs or fails disturbs no other.

=======================  ===================================================================================
event                    what the daemon does
=======================  ===================================================================================
the file is reloaded     starts new targets, stops those that are gone, restarts those whose settings changed,
                         and leaves all others alone. A file with a mistake changes nothing. A target waits
                         for one that has its name or server, was stopped, and still hangs
the daemon is stopped    finishes every change under way; a change on probation is undone, unless it is the
                         best known
the daemon is killed     the next daemon finds in the store which change was under way, and asks the server
                         which configuration it runs
the store is damaged     at the start or later: renames it and starts with an empty one. What servers run is
                         read from the servers, and operators' orders are carried over, so only what was
                         learned is lost
another daemon runs      does not start: each would undo what the other does
=======================  ===================================================================================
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from tuner.adapters.place import places_of
from tuner.control.daemon.config import DaemonConfig, TargetConfig
from tuner.control.daemon.phase import AbsentTarget
from tuner.control.daemon.report import Say, WorkerReport
from tuner.control.daemon.turned_models import TurnedModels
from tuner.control.daemon.worker import Worker
from tuner.control.sentence import log_sentence
from tuner.control.store.daemon_store import DaemonStore
from tuner.control.store.store import Store
from tuner.errors import InvalidInput, StorageError, TunerError
from tuner.files.yaml_file import load_yaml

__all__ = ["Daemon", "Frontend"]

log = logging.getLogger(__name__)

TICK = 0.2
"""Pause between two looks at signals and threads, s."""
PRUNE_EVERY = 3600.0
"""Time between two deletions of what is older than ``keep``, s."""
STAGGER = 0.01
"""Pause between the starts of two targets, s: the windows of a thousand must not end at the same moment."""
CHECK_EVERY = 2.0
"""Time between two checks of the store's file, and of files that are renewed, s."""
PATIENCE = 120.0
"""How long the daemon waits for a target to finish a change, s."""


class Frontend(AbstractContextManager["Frontend"], Protocol):
    """Shows a daemon to people and programs outside it, such as a web server.

    The daemon enters it when its store is open, and leaves it before the store is closed. It may do so
    several times.
    """

    def report(self, name: str, report: WorkerReport) -> None:
        """Take in one turn of a target. Called in the thread of the target's worker."""
        ...

    def look(self) -> None:
        """Look whether what it needs from files was renewed. Called every two seconds."""
        ...


class Daemon:
    """Keeps the targets of a file until stopped.

    Life: `run` blocks; `stop` and `reload` may be called from signal handlers and other threads.

    Args:
        path: The file.
        now: Seconds since 1970.
        fast: Let simulated targets run as fast as they can.
        windows: Number of windows after which each target ends, or at a mistake of it; 0 goes on.
        say: Receives what is to be logged.

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
        say: Say = log_sentence,
    ) -> None:
        self.config = load_yaml(path, DaemonConfig, here=True)
        self._path = path
        self._now = now
        self._fast = fast
        self._windows = windows
        self._say = say
        self._workers: dict[str, tuple[Worker, threading.Thread]] = {}
        self._hanging: set[str] = set()  # those of them that were stopped in vain
        self._waiting: list[TargetConfig] = []  # for one of those
        self._absent: dict[str, AbsentTarget] = {}  # those that no worker keeps
        self._turned = TurnedModels()
        self._read = now()  # when the file was read, s since 1970
        self._ticked = time.monotonic()
        self._prune_at = 0.0  # on that clock
        self._frontend: Frontend | None = None
        self._stopping = self._reloading = False  # only assigned to: safe in a signal handler

    @property
    def workers(self) -> dict[str, Worker]:
        """The worker of each target, by name."""
        return {name: worker for name, (worker, _) in dict(self._workers).items()}  # a copy: threads ask

    @property
    def shown(self) -> dict[str, Worker | AbsentTarget]:
        """Each target of the file, whether it has a worker or not, and each that has yet to end, by name.

        While the daemon stops, a target that has ended is not shown any more.
        """
        starting: dict[str, Worker | AbsentTarget] = {
            target.name: AbsentTarget(config=target, phase="starting", since=self._read)
            for target in ([] if self._stopping else self.config.targets)
        }
        return starting | self.workers | dict(self._absent)

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
            InvalidInput: Another daemon uses the store, or the frontend cannot listen; at the end of a number
                of windows: a target could not be kept, because what it is asked for cannot be.
        """
        self._frontend = frontend
        state = DaemonStore(self.config.state, now=self._now, say=lambda sentence: self._say("", sentence))
        with state:
            while damage := self._run(state):
                self._say("", f"{damage}; all targets are started again")

    def _run(self, state: DaemonStore) -> str:
        """Keep the targets until the daemon ends (return "") or the store is damaged (return how)."""
        names = [target.name for target in self.config.targets]
        self._waiting, self._absent, self._read = [], {}, self._now()
        with state.opened(names) as store, self._frontend or nullcontext():
            try:
                # Before the workers: what they resolve at their start must not be deleted at once.
                self._prune(store)
                self._begin_all(self.config.targets, store)
                return self._wait(store, state)
            finally:
                self._end(list(self._workers), PATIENCE)

    def _wait(self, store: Store, state: DaemonStore) -> str:
        """Look after signals, store and frontend; return "" when the daemon ends, or the store's damage."""
        checked = time.monotonic()
        while not self._stopping:
            self._ticked = time.monotonic()
            if self._reloading:
                self._reloading = False
                self._reload(store)
            self._begin_waiting(store)
            if time.monotonic() >= self._prune_at:
                self._prune(store)
            if time.monotonic() - checked >= CHECK_EVERY:
                checked = time.monotonic()
                if self._frontend is not None:
                    self._frontend.look()
                if damage := state.damage():
                    return damage
            alive = self._waiting or any(thread.is_alive() for _, thread in self._workers.values())
            if self._windows and not alive:
                self._check_mistakes()
                return ""
            time.sleep(TICK)
        return ""

    def _check_mistakes(self) -> None:
        """Raise InvalidInput if targets ended because of a mistake; names them all."""
        found = [f"{name}: {one.mistake}" for name, one in self.workers.items() if one.mistake is not None]
        if found:
            count = f"{len(found)} of {len(self._workers)} cannot be kept as they are:"
            raise InvalidInput("targets", "\n  ".join([count, *found]))

    def _in_the_way(self, target: TargetConfig) -> str | None:
        """Return the name of a target that still hangs and has the name or the server of this one."""
        if not self._hanging:
            return None
        places, urls = places_of(target.url), {n: self._workers[n][0].config.url for n in self._hanging}
        return next((n for n, url in urls.items() if n == target.name or places & places_of(url)), None)

    def _begin_waiting(self, store: Store) -> None:
        """Forget the targets that have ended after they were stopped; start those that waited for them."""
        for name in [name for name in self._hanging if not self._workers[name][1].is_alive()]:
            self._hanging.remove(name)
            del self._workers[name]
            self._absent.pop(name, None)
        for target in [target for target in self._waiting if self._in_the_way(target) is None]:
            self._waiting.remove(target)
            self._begin(target, store)

    def _begin_all(self, targets: Iterable[TargetConfig], store: Store) -> None:
        """Start targets, one shortly after the other."""
        for number, target in enumerate(targets):
            self._begin(target, store, delay=0.0 if self._fast else number * STAGGER)

    def _begin(self, target: TargetConfig, store: Store, *, delay: float = 0.0) -> None:
        """Start a target, now or when one has ended that is in its way."""
        if (other := self._in_the_way(target)) is not None:  # two workers would undo what the other does
            who = "" if other == target.name else f"'{other}', which has its server, "
            why = f"{who}still hangs; it is started when that has ended"
            self._say(target.name, why)
            self._waiting.append(target)
            self._note_absent(target, why if who else f"it {why}")
            return
        self._absent.pop(target.name, None)  # it may have waited for one of another name
        worker = Worker(
            target,
            store,
            now=self._now,
            fast=self._fast,
            windows=self._windows,
            say=self._say,
            watch=self._frontend.report if self._frontend is not None else None,
            turned=self._turned,
        )
        # A daemon thread: a server that hangs must not keep the interpreter from exiting.
        thread = threading.Thread(target=worker.run, args=(delay,), name=f"target-{target.name}", daemon=True)
        self._workers[target.name] = (worker, thread)
        try:
            thread.start()
        except RuntimeError as error:  # the system allows no further one
            del self._workers[target.name]
            why = f"cannot be started: {error}; it is started when the file is read again"
            self._say(target.name, why)
            self._note_absent(target, f"it {why}")

    def _note_absent(self, target: TargetConfig, why: str) -> None:
        """Note why a target has no worker that keeps it, for those who look at the daemon."""
        self._absent[target.name] = AbsentTarget(config=target, phase=f"waiting: {why}", since=self._now())

    def _end(self, names: list[str], within: float = math.inf) -> None:
        """Stop targets and wait for them together; one that hangs stays among the workers.

        Args:
            names: The targets.
            within: How long they have, s: the process ends then. Without it nobody is waited for any longer
                once the daemon itself is to stop.
        """
        for name in names:
            self._workers[name][0].stop(within)
        deadline = time.monotonic() + PATIENCE
        for name in names:
            worker, thread = self._workers[name]
            while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
                if self._stopping and math.isinf(within):
                    return
                thread.join(min(left, TICK))
            if thread.is_alive():
                why = f"did not finish within {PATIENCE:.0f} s: {worker.phase}"
                self._say(name, why)
                self._hanging.add(name)
                self._note_absent(worker.config, f"it was stopped, and {why}")
            else:
                self._hanging.discard(name)
                del self._workers[name]

    def _reload(self, store: Store) -> None:
        """Read the file again and follow it. Whatever is wrong with the file, the daemon goes on."""
        try:
            config = self._read_again()
        except TunerError as error:
            self._say("", f"the file was not reloaded, everything stays as it was: {error}")
            return
        except Exception:  # the last net: a daemon that keeps servers must not end over a file
            log.exception("the file was not reloaded, everything stays as it was")
            return
        wanted = {target.name: target for target in config.targets}
        # One that was asked to stop, and hung, is not kept though its settings are those of the file again.
        kept = {
            name
            for name, worker in self.workers.items()
            if not worker.stopping and wanted.get(name) == worker.config
        }
        over = [name for name in self.workers if name not in kept]
        begun = [name for name in wanted if name not in kept]
        self._waiting, self._absent, self._read, self.config = [], {}, self._now(), config
        self._end(over)
        if self._stopping:
            return
        self._begin_all([wanted[name] for name in begun], store)
        begun = [name for name in begun if name not in self._absent]
        gone = ", ".join(name for name in over if name not in wanted) or "none"
        self._say("", f"the file was reloaded; started: {', '.join(begun) or 'none'}; stopped: {gone}")

    def _read_again(self) -> DaemonConfig:
        """Read the file again.

        Raises:
            InvalidInput: It has a mistake, or asks for what needs a restart.
            StorageError: It cannot be read.
        """
        config = load_yaml(self._path, DaemonConfig)
        if config.state != self.config.state:
            problem = f"differs from {self.config.state}, which is in use"
            raise InvalidInput("state", problem, "restart the daemon")
        if config.http != self.config.http:
            raise InvalidInput("http", "has changed", "restart the daemon")
        return config

    def _prune(self, store: Store) -> None:
        """Delete a slice of what is older than ``keep``, and note when to go on.

        While there is more, that is at the next tick: between two slices signals are seen, and targets write.
        """
        more = 0
        try:
            more = store.prune(self._now() - self.config.keep)
        except StorageError as error:
            self._say("", str(error))
        self._prune_at = time.monotonic() + (0.0 if more else PRUNE_EVERY)
