"""One daemon per store: a lock file beside it, and a lock on the store's file itself.

The lock file is held for as long as the daemon runs, also while a damaged store is replaced. The store is
locked as well, because a lock file can be deleted, and a file can have a second name. The kernel releases
both when the process dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tuner.control.store.database import storage_error
from tuner.errors import InvalidInput, StorageError

__all__ = ["LockFile", "locked_store"]

LOCK = re.compile(rb"(?P<process>\d{1,10})\n(?P<opened>opened\n)?")
"""What a lock file contains: the process that holds it or held it last, and whether that opened the store."""


class LockFile(AbstractContextManager["LockFile"]):
    """The lock file beside a store.

    Life: enter it to take the lock, leave it to let go.

    Args:
        state: The store. Links on the way to its folder are followed, so that they lead to the same lock.

    Raises:
        InvalidInput: On entering, another process holds the lock.
        StorageError: On entering, the lock file cannot be created, is not a file of ours, or is not a lock.
    """

    def __init__(self, state: Path) -> None:
        self.opened = False
        """Whether a daemon has ever opened the store: if it is missing, it was deleted."""
        self._state = state
        self._path = Path(os.path.realpath(state.parent)) / f"{state.name}.lock"
        self._held = ExitStack()

    def __enter__(self) -> Self:
        with suppress(OSError):
            _check(self._state.lstat(), f"state {self._state}")  # before a lock is put beside it
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def note_opened(self) -> None:
        """Write down that the store was opened, for the next process."""
        self.opened = True
        self._write()

    def keep(self) -> None:
        """Take the lock file again if somebody deleted it, so that the next process finds it."""
        if not os.path.exists(self._path):  # pathlib raises where a disk fails
            with suppress(InvalidInput, StorageError):  # another time
                self._take()

    def _take(self) -> None:
        with ExitStack() as opened:
            descriptor = _opened(self._path, f"lock {self._path}")
            opened.callback(os.close, descriptor)
            content = os.pread(descriptor, 100, 0)
            found = LOCK.fullmatch(content)
            if content and found is None:
                problem = "is another program's file; move it away, or give another state"
                raise StorageError(f"lock {self._path}: {problem}")
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                process = found["process"].decode() if found is not None else "unknown"
                problem = f"{self._state} is used by another daemon (process {process})"
                raise InvalidInput("state", problem) from None
            except OSError as error:
                raise StorageError(f"lock {self._path}: {error.strerror}; choose another folder") from error
            self._held.push(opened.pop_all())
        known = found is not None and found["opened"] is not None
        self.opened = self.opened or known
        self._descriptor = descriptor
        self._write()

    def _write(self) -> None:
        content = f"{os.getpid()}\n{'opened' if self.opened else ''}".strip() + "\n"
        with suppress(OSError):  # the disk is full; the lock is held all the same
            os.pwrite(self._descriptor, content.encode(), 0)
            os.ftruncate(self._descriptor, len(content))


@contextmanager
def locked_store(path: Path) -> Iterator[int]:
    """Hold a lock on a store's file, which is created with mode 0600 if there is none; yields a descriptor.

    It is entered before the file is opened with SQLite and left after that was closed: when a process closes
    any descriptor of a file, it loses the locks by which SQLite knows its connections.

    Raises:
        InvalidInput: Another daemon uses the file, maybe under another name.
        StorageError: It cannot be created, is a link, or is not a file of ours.
    """
    descriptor = _opened(path, f"state {path}")
    try:
        # On other systems than Linux this kind of lock and that of SQLite exclude each other. A file system
        # may have no such locks; the lock file is left then.
        if sys.platform == "linux":
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidInput("state", f"{path} is used by another daemon") from None
            except OSError:
                pass
        yield descriptor
    finally:
        os.close(descriptor)


def _opened(path: Path, name: str) -> int:
    """Open a regular file of ours that has one name; create it if there is none.

    Args:
        path: The file.
        name: What messages call it.

    Raises:
        StorageError: It cannot be created, or is something else.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with suppress(FileNotFoundError):
            _check(path.lstat(), name)
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        problem = f"{name}: {error.strerror}; choose another folder"
        if error.errno == errno.EROFS and not os.path.lexists(path):  # it never was here: the wrong folder
            raise StorageError(problem) from error
        raise storage_error(problem, error) from error
    try:
        _check(os.fstat(descriptor), name)  # again: it may have been replaced since
    except StorageError:
        os.close(descriptor)
        raise
    return descriptor


def _check(found: os.stat_result, name: str) -> None:
    problem = ""
    if stat.S_ISLNK(found.st_mode):
        problem = "is a link, and not a file of its own"
    elif not stat.S_ISREG(found.st_mode):
        problem = "is not a regular file"
    elif found.st_uid != os.geteuid():
        problem = f"belongs to {_user(found.st_uid)}, not to {_user(os.geteuid())}, who runs this"
    elif found.st_nlink > 1:
        problem = "has a second name (a hard link), under which its log would not be found"
    if problem:
        raise StorageError(f"{name}: {problem}; move it away, or give another state")


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
