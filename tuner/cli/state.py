"""The option ``--state``: the daemon's store, which commands read or write orders to."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tuner.control.store.store import Store

__all__ = ["STATE", "ReadState", "State", "opened_store"]

STATE = Path("servetune.db")
"""The store of a daemon whose file names none."""

State = Annotated[Path, typer.Option("--state", metavar="FILE", help="The `state` of the daemon's file.")]
ReadState = Annotated[
    Path, typer.Option("--state", metavar="FILE", help="The `state` of the daemon's file. It is only read.")
]

FIX = "give the `state` of the daemon's file"


@contextmanager
def opened_store(path: Path, *, reading: bool = False) -> Iterator[Store]:
    """Open the store that the user names, for a block.

    Args:
        path: The file, which must be there.
        reading: Only read it.

    Raises:
        InvalidInput: It is something else than a store; names the option.
        StorageError: It is missing, damaged, or of another version.
    """
    from tuner.control.store.store import Store

    _check(path)
    with closing(Store(path, reading=reading, existing=True)) as store:
        yield store


def _check(path: Path) -> None:
    """Check that a file that can be opened is a store: SQLite has its own words for what is none."""
    from tuner.control.store.database import is_store
    from tuner.errors import InvalidInput

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):  # the store says so
        return
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise InvalidInput("--state", f"{path} is a folder", FIX)
        if not stat.S_ISREG(mode):
            raise InvalidInput("--state", f"{path} is a pipe or a device, not a file", FIX)
        if not is_store(descriptor):
            raise InvalidInput("--state", f"{path} is not a store of servetune", FIX)
    finally:
        os.close(descriptor)
