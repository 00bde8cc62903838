"""The store of a daemon for as long as that runs, over damage and loss of the file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tuner.control.decide.orders import Orders
from tuner.control.store.database import file_of, is_store, storage_error
from tuner.control.store.lock import LockFile, locked_store
from tuner.control.store.order_book import all_orders, carry_over, salvaged_orders
from tuner.control.store.store import Store
from tuner.errors import Damaged, InvalidInput, StorageError

__all__ = ["DaemonStore"]

LOG = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
"""The first bytes of SQLite's logs."""
LOST = "the store was {}, and with it the operators' orders"
"""The reason of a pause, for targets whose orders are lost."""


class DaemonStore(AbstractContextManager["DaemonStore"]):
    """The store of a daemon, which no other daemon can use. What operators ordered outlives its file.

    Life: enter it, which takes the lock of the store. Each `opened` is a block with an open store; ask for
    its `damage` now and then, and leave the block if there is any. The next block has another store.

    ==========================  ==============================================================================
    what is found               what happens
    ==========================  ==============================================================================
    no file, or an empty one    a new store is made. If there was one, the orders are taken from memory;
                                without any in memory, all targets are paused
    a damaged store             it is renamed, and a new one is made. The orders are taken from memory, or
                                read from the damaged store; if neither can be done, all targets are paused
    anything else: another      an error; the file stays as it is
    program's, a newer version
    ==========================  ==============================================================================

    Args:
        path: The store's file.
        now: Returns seconds since 1970.
        say: Receives a sentence about what happened to it.
    """

    def __init__(self, path: Path, *, now: Callable[[], float], say: Callable[[str], None]) -> None:
        self._path = path
        self._now = now
        self._say = say
        self._lock = LockFile(path)
        self._store: Store | None = None
        self._orders: dict[str, Orders] | None = None  # as they were read last; None before the first time
        self._damaged: tuple[int, int] | None = None  # the file that was open, if its content is damaged

    def __enter__(self) -> Self:
        self._lock.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.__exit__(kind, error, trace)

    def damage(self) -> str:
        """Return why the store cannot be used any longer, empty if it can; remember the orders in it."""
        assert self._store is not None, "it is asked about an open store"
        problem = self._store.damage()
        self._lock.keep()
        if problem:
            self._store.remove_orphans()
        with suppress(StorageError):
            found = all_orders(self._store)
            # A damaged store may have lost some; a sound one is right also where a name has none any more.
            self._orders = (self._orders or {}) | found if problem else found
        self._damaged = self._store.file if self._store.damaged else None
        return problem

    @contextmanager
    def opened(self, targets: Sequence[str]) -> Iterator[Store]:
        """Open the store for a block.

        Args:
            targets: The names of the daemon's targets, which are paused if their orders are lost.

        Raises:
            InvalidInput: Another daemon uses the file.
            StorageError: It cannot be opened, or is not a store of this version.
        """
        with ExitStack() as held:
            if not os.path.lexists(self._path):
                _remove_log(self._path)  # SQLite would apply a log that is left over to the new file
            try:
                self._store, renamed = self._open(held, targets)
            except InvalidInput:  # a daemon whose lock file was deleted has it: it is a store
                self._lock.note_opened()
                raise
            for sentence in [*renamed, *self._restore_orders("damaged" if renamed else "deleted")]:
                self._say(sentence)
                with suppress(StorageError):
                    self._store.note(sentence)
            self._lock.note_opened()
            yield self._store

    def _open(self, held: ExitStack, targets: Sequence[str]) -> tuple[Store, list[str]]:
        """Open the store, or a new one if it is damaged; return it, and a sentence if one was renamed."""
        before = self._store
        with ExitStack() as first:
            descriptor = first.enter_context(locked_store(self._path))
            known = self._damaged == file_of(os.fstat(descriptor))  # a store of ours, and damaged
            try:
                if not known and not is_store(descriptor):
                    raise StorageError(f"state {self._path}: is not a store of servetune; give another file")
                if known and before is not None and before.unparsable:
                    raise Damaged(before.damage())  # SQLite finds nothing wrong with the file
                store = first.enter_context(self._store_at_path(targets, "deleted"))
            except StorageError as error:
                if not known and not isinstance(error, Damaged):
                    raise
                sentence = self._put_aside(str(error))
            else:
                held.push(first.pop_all())
                return store, []
        held.enter_context(locked_store(self._path))
        return held.enter_context(self._store_at_path(targets, "damaged")), [sentence]

    def _store_at_path(self, targets: Sequence[str], lost: str) -> closing[Store]:
        """Open the file; if it is made anew, with the orders from before in the transaction that makes it.

        Whoever is killed leaves a store with its orders, or none. If they are lost, all targets are paused.

        Args:
            targets: The names of the daemon's targets.
            lost: What happened to the store that held the orders, if there was one.
        """
        orders = self._orders
        if orders is None:
            why = LOST.format(lost)
            orders = {name: Orders(paused=why) for name in targets} if self._lock.opened else {}
        return closing(Store(self._path, now=self._now, begin=partial(carry_over, orders=orders)))

    def _restore_orders(self, lost: str) -> list[str]:
        """Have the store that was opened hold the orders from before; return sentences about them.

        Args:
            lost: What happened to the store that held the orders, if this one is new.
        """
        assert self._store is not None
        created = self._store.created
        if self._orders is None:
            with suppress(StorageError):  # else the workers find them unreadable, and change nothing
                self._orders = all_orders(self._store)
            if not (created and self._lock.opened):
                return []
            return [f"{LOST.format(lost)}: all targets are paused; `tuner resume NAME` lets one be tuned"]
        if not created:
            with suppress(StorageError):
                if all_orders(self._store) == self._orders:
                    return []  # it is the same store, and the disk may be full
            with self._store.writing() as db:
                carry_over(db, self._orders)
        standing = [name for name, orders in self._orders.items() if orders != Orders()]
        return [f"orders were carried over: {', '.join(standing)}"] if standing else []

    def _put_aside(self, damage: str) -> str:
        """Rename a damaged store with its log; return a sentence about it."""
        self._lock.note_opened()  # if there is no room for a new one, the next start has to know of this one
        if self._orders is None:
            self._orders = salvaged_orders(self._path)
        name = f"{self._path.name}.damaged-{datetime.fromtimestamp(self._now()):%Y%m%d-%H%M%S}"
        aside, number = self._path.with_name(name), 1
        while os.path.lexists(aside):
            number += 1
            aside = self._path.with_name(f"{name}-{number}")
        try:
            self._path.replace(aside)
            with suppress(FileNotFoundError):
                if _log(self._path).stat().st_size:
                    _log(self._path).replace(_log(aside))
        except OSError as error:
            raise storage_error(f"state {self._path}: {error.strerror}; {damage}", error) from error
        _remove_log(self._path)
        return f"{damage}; it was renamed to {aside.name}, and learning starts from nothing"


def _log(path: Path, ending: str = "-wal") -> Path:
    return path.with_name(path.name + ending)


def _remove_log(path: Path) -> None:
    """Delete the write-ahead log of a store whose file is gone.

    Raises:
        StorageError: It cannot be deleted, or is no log.
    """
    log, index = _log(path), _log(path, "-shm")
    try:
        if log.is_file() and log.read_bytes()[:4] not in (b"", *LOG):
            raise StorageError(f"{log}: is another program's file; move it away, or give another state")
        log.unlink(missing_ok=True)
        index.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{error.filename}: {error.strerror}; move it away") from error
