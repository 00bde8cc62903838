"""What files hold, read again when they are replaced: certificates and tokens are renewed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from tuner.errors import InvalidInput, StorageError

__all__ = ["STAYS", "Renewed", "Stamp", "stamps"]

STAYS = "what was read before stays in use"
"""What an operator is told of files that cannot be used."""

ValueT = TypeVar("ValueT")
Stamp = tuple[int, int, int, int] | None
"""Device, inode, time of the last change (of the mode, too) in ns, and size of a file; None without one."""


def stamps(paths: Iterable[Path]) -> tuple[Stamp, ...]:
    """Return what tells whether files were replaced or written. Of a link, its file counts."""
    return tuple(_stamp(path) for path in paths)


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError: such as a name with a null
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns, found.st_size


class Renewed(Generic[ValueT]):
    """A value that files hold: the last one that could be used.

    Whoever made it calls :meth:`look` from time to time, or :meth:`read`; others take `value` as it is. The
    files are read at once when it is made.

    Args:
        read: Reads the value. It raises an error that names the file, if the files cannot be used.
        paths: The files; without any the value stays.
    """

    def __init__(self, read: Callable[[], ValueT], paths: Iterable[Path]) -> None:
        self._read = read
        self._paths = tuple(paths)
        self._held = self._seen = stamps(self._paths)  # before they are read, so that no change is missed
        self._problem = ""
        self.value = read()

    def look(self) -> bool:
        """Read the files if they have changed, and since the last look no more; return whether the value has.

        Files that belong together are replaced one after the other, and some are written in place: what is
        found in the middle of that is no mistake yet. A mistake that stays is raised once.

        Raises:
            InvalidInput: They cannot be used.
            StorageError: They cannot be read.
        """
        found = stamps(self._paths)
        rest, self._seen = found == self._seen, found
        if not rest:
            return False
        try:
            changed = self.read()
        except (InvalidInput, StorageError) as error:
            if str(error) == self._problem:
                return False
            self._problem = str(error)
            raise
        self._problem = ""
        return changed

    def read(self) -> bool:
        """Read the files now, unless the value is from them; return whether it is another one than before.

        Raises:
            InvalidInput: They cannot be used.
            StorageError: They cannot be read.
        """
        found = stamps(self._paths)
        if found == self._held:
            return False
        value = self._read()
        self._held = found
        changed = value != self.value
        self.value = value
        return changed
