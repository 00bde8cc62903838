"""Everything that an adapter does to files and server passes through one point, where the world goes on.

At each such point time passes, clients send requests, and somebody else may act; the tuner may be killed
there, or the system may refuse what it is asked.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.adapters.live import waiting

__all__ = ["Killed", "World"]

WRITES = ("link", "rename", "replace", "mkdir", "unlink", "rmdir", "fsync", "chmod", "fchmod")
READS = ("listdir", "scandir", "stat", "readlink")


class Killed(BaseException):
    """The tuner is dead: from here on it does nothing, not even clean up."""


class World:
    """Files, time and the others.

    Args:
        rng: Draws what happens.
        root: The folder in which all files are.
        passes: Called with how much time passes.
        others: Called at each point; somebody else may act then.
    """

    def __init__(self, rng: random.Random, root: Path, passes: Callable[[float], None]) -> None:
        self.rng = rng
        self.root = str(root)
        self.others: Callable[[], None] = lambda: None
        self._passes = passes
        self._active = False
        self._dead = False
        self._steps = 0
        self._kill_at = self._fail_at = -1
        self._interrupts = False
        self._code = errno.ENOSPC
        self._descriptors: set[int] = set()
        self.time = 0.0
        self.journal: list[str] = []
        self.leaked = 0
        """Descriptors that tuners have left open."""
        self._waited_for: set[int] = set()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have all operations pass through here."""
        for name in (*WRITES, *READS):
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name), writes=name in WRITES))
        monkeypatch.setattr(os, "open", self._opening(os.open))
        monkeypatch.setattr(os, "close", self._closing(os.close))
        monkeypatch.setattr(io, "open", self._wrapped("open", io.open, writes=True))
        monkeypatch.setattr(fcntl, "flock", self._locking(fcntl.flock))
        clock = SimpleNamespace(monotonic=lambda: self.time, sleep=self.sleep)
        monkeypatch.setattr(waiting, "time", clock)

    @contextmanager
    def tuner(self, *, kill_at: int = -1, fail_at: int = -1, interrupts: bool = False) -> Iterator[None]:
        """A tuner's process does something; it may be killed, or refused something, at a step."""
        before = dict(vars(self))  # of another tuner, in the middle of whose work this one comes
        self._active, self._dead, self._steps, self._descriptors = True, False, 0, set()
        self._kill_at, self._fail_at, self._interrupts = kill_at, fail_at, interrupts
        self._code = self.rng.choice([errno.ENOSPC, errno.EACCES, errno.EIO])
        try:
            yield
        finally:
            self._active = False
            if self._dead:
                for descriptor in list(self._descriptors):
                    os.close(descriptor)
            self.leaked += len(self._descriptors)
            kept = (
                "_active",
                "_dead",
                "_steps",
                "_descriptors",
                "_kill_at",
                "_fail_at",
                "_interrupts",
                "_code",
            )
            vars(self).update({name: before[name] for name in kept})

    @property
    def locked(self) -> bool:
        """Whether a tuner holds a lock for which another would wait."""
        return bool(self._waited_for & self._descriptors)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What happens here is not the tuner's doing."""
        before, self._active = self._active, False
        try:
            yield
        finally:
            self._active = before

    def sleep(self, seconds: float) -> None:
        """Let the tuner sleep."""
        self.point("sleep", writes=False)
        self.pass_time(seconds)

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.time += seconds
        with self.aside():
            self._passes(seconds)

    def point(self, what: str, *, writes: bool) -> None:
        """Let the world go on at an operation of the tuner's."""
        if not self._active:
            return
        if self._dead:
            raise Killed
        self._steps += 1
        if not what.startswith(("replace", "load")):  # nobody can be that quick
            with self.aside():
                self.others()
        if self.rng.random() < 0.2:
            self.pass_time(self.rng.choice([0.01, 0.1, 0.6]))
        if self._steps == self._kill_at:
            self.journal.append(f"  killed at {what}")
            if self._interrupts:
                raise KeyboardInterrupt
            self._dead = True
            raise Killed
        if self._fail_at > 0 and self._steps >= self._fail_at and writes:
            self._fail_at = -1
            self.journal.append(f"  {errno.errorcode[self._code]} at {what}")
            raise OSError(self._code, os.strerror(self._code))

    def _is_of_here(self, what: Any, options: Mapping[str, Any]) -> bool:
        """Whether an operation is on one of our files; Python reads others when it imports modules."""
        return isinstance(what, int) or str(what).startswith(self.root) or options.get("dir_fd") is not None

    def _wrapped(self, name: str, function: Callable[..., Any], *, writes: bool) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._active and self._is_of_here(args[0], kwargs):
                self.point(f"{name} {str(args[0]).removeprefix(self.root)}", writes=writes)
            return function(*args, **kwargs)

        return call

    def _opening(self, function: Callable[..., int]) -> Callable[..., int]:
        def call(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if self._active and self._is_of_here(path, kwargs):
                self.point(f"open {str(path).removeprefix(self.root)}", writes=bool(flags & os.O_CREAT))
            descriptor = function(path, flags, *args, **kwargs)
            if self._active:
                self._descriptors.add(descriptor)
            return descriptor

        return call

    def _locking(self, function: Callable[[int, int], None]) -> Callable[[int, int], None]:
        def call(descriptor: int, operation: int) -> None:
            if self._active:
                self.point("flock", writes=False)
            function(descriptor, operation)
            if operation == fcntl.LOCK_EX:
                self._waited_for.add(descriptor)

        return call

    def _closing(self, function: Callable[[int], None]) -> Callable[[int], None]:
        def call(descriptor: int) -> None:
            self._descriptors.discard(descriptor)
            self._waited_for.discard(descriptor)
            function(descriptor)

        return call
