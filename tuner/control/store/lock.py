"""One daemon per store: a lock file beside it, and a lock on the store's file itself.

The lock file is held for as long as the daemon runs, also while a damaged store is replaced. The store is
locked as well, because a lock file can be deleted, and a file can have a second name. The kernel releases
both when the process dies.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.errors import InvalidInput, StorageError

__all__ = ["LockFile", "lock_file", "locked_store"]

LOCK = re.compile(rb"(?P<process>\d{1,10})\n(?P<opened>opened\n)?")
"""What a lock file contains: the process that holds it or held it last, and whether that opened the store."""


class LockFile:
    """The lock file of a store, while it is held.

    Args:
        descriptor: The open file.
        opened: Whether an earlier daemon has opened the store.
    """

    def __init__(self, descriptor: int, *, opened: bool) -> None:
        self._descriptor = descriptor
        self._opened = opened
        self._write()

    @property
    def opened(self) -> bool:
        """Whether a daemon has ever opened the store: if it is missing, it was deleted."""
        return self._opened

    def note_opened(self) -> None:
        """Write down that the store was opened, for the next process."""
        self._opened = True
        self._write()

    def _write(self) -> None:
        content = f"{os.getpid()}\n{'opened' if self._opened else ''}".strip() + "\n"
        with suppress(OSError):  # the disk is full; the lock is held all the same
            os.pwrite(self._descriptor, content.encode(), 0)
            os.ftruncate(self._descriptor, len(content))


@contextmanager
def lock_file(state: Path) -> Iterator[LockFile]:
    """Hold the lock file beside a store.

    Args:
        state: The store. Links on the way to its folder are followed, so that they lead to the same lock.

    Raises:
        InvalidInput: Another process holds the lock.
        StorageError: The lock file cannot be created, is not a file of ours, or is not a lock.
    """
    path = Path(os.path.realpath(state.parent)) / f"{state.name}.lock"
    descriptor = _opened(path, f"lock {path}")
    try:
        content = os.pread(descriptor, 100, 0)
        found = LOCK.fullmatch(content)
        if content and found is None:
            raise StorageError(f"lock {path}: is another program's file; move it away, or give another state")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            process = found["process"].decode() if found is not None else "unknown"
            raise InvalidInput("state", f"{state} is used by another daemon (process {process})") from None
        except OSError as error:
            raise StorageError(f"lock {path}: {error.strerror}; choose another folder") from error
        yield LockFile(descriptor, opened=found is not None and found["opened"] is not None)
    finally:
        os.close(descriptor)


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
        raise StorageError(f"{name}: {error.strerror}; choose another folder") from error
    try:
        _check(os.fstat(descriptor), name)  # again: it may have been replaced since
    except StorageError:
        os.close(descriptor)
        raise
    return descriptor


def _check(found: os.stat_result, name: str) -> None:
    problem = ""
    if stat.S_ISLNK(found.st_mode):
        problem = "is a link; give the file itself"
    elif not stat.S_ISREG(found.st_mode):
        problem = "is not a regular file; give another one"
    elif found.st_uid != os.geteuid():
        problem = f"belongs to {_user(found.st_uid)}, not to {_user(os.geteuid())}, who runs this"
    elif found.st_nlink > 1:
        problem = "has a second name (a hard link), under which its log would not be found; keep one of them"
    if problem:
        raise StorageError(f"{name}: {problem}")


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
