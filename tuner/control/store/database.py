"""The daemon's SQLite file: opened, checked, written in whole transactions.

A killed process leaves whole transactions only (write-ahead log). A power failure may lose the daemon's last
ones (``synchronous=NORMAL``). It survives that, because it always asks a server for its configuration. No
order is lost that was given by a command or over HTTP (``FULL``).
"""

from __future__ import annotations

import errno
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tuner.control.store.schema import (
    ADDED,
    ADDED_INDEX,
    APPLICATION,
    COLUMNS,
    SCHEMA,
    UPGRADES,
    VERSION,
)
from tuner.errors import Damaged, StorageError, Unavailable

__all__ = ["PARSE_ERRORS", "Database", "file_of", "is_store", "storage_error"]

DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""SQLite's codes for a damaged file. The last is that of a wrong statement: ours are right, so a table, a
column or the format of the file is not."""
PASSING = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_BUSY)
"""SQLite's codes for a disk that is full or fails, and for a file that another program locks. The third is
that of a log that it could not make: the file itself was looked at before."""
PASSING_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
"""The system's numbers for the same."""
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""Errors of a file that cannot be read; Python raises the second for column names that are no text."""
PARSE_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Errors that parsing raises for a row with values that no daemon wrote."""
KINDS = {"INTEGER": (int, float), "REAL": (int, float), "TEXT": (str,), "BLOB": (bytes,)}
"""The Python types of the values that SQLite returns, by the declared type of the column."""
INFINITE = (math.inf, -math.inf)
ONE_PAGE = 4096
"""Bytes of a store whose tables were not created yet: SQLite's first page."""
PARTS = {"": "", "-wal": "its log ", "-shm": "the index of its log "}
"""The endings of the names of a store's files, and what messages call each of them."""


class Database:
    """One SQLite file, which several threads may use.

    Args:
        path: Created with mode 0600 if it does not exist.
        reading: Only read; the file must exist.
        existing: The file must exist.
        begin: Writes what a store that is made anew begins with, in the transaction that makes it.

    Attributes:
        created: Whether it was made anew, of no file or of an empty one.
        unparsable: Whether a row was found that cannot be parsed: damage that SQLite does not notice.

    Raises:
        Damaged: It is a store, or was one, and is damaged.
        StorageError: It cannot be opened, or was written by another program or a newer version.
    """

    def __init__(
        self,
        path: Path,
        *,
        reading: bool = False,
        existing: bool = False,
        begin: Callable[[sqlite3.Connection], None] | None = None,
    ) -> None:
        self.path = path
        self._begin = begin
        self._lock = threading.RLock()
        self._damage = ""
        self.created = self.unparsable = False
        existing = existing or reading
        try:
            if existing and not path.is_file():
                fix = "give the `state` of the daemon's file"
                raise StorageError(f"state {path}: there is no such file; {fix}")
            if not reading:
                _make_private(path)
            elif not os.access(path, os.R_OK):  # SQLite would only say that it cannot be opened
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            place = _read_only(path) if reading and not _is_writable(path) else ""
            self._db = sqlite3.connect(
                place or path, uri=bool(place), timeout=10, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise self._problem(error) from error
        try:
            self._prepare(reading=reading, new=not existing)
            self._files = self._file_identities()
        except (OSError, *UNREADABLE) as error:
            self._db.close()
            raise self._problem(error) from error
        except StorageError:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the file. May be called twice."""
        with self._lock:
            self._db.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or nothing.

        Raises:
            StorageError: The file cannot be written.
        """
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except BaseException as error:
                self._roll_back()
                if isinstance(error, UNREADABLE):
                    raise self._problem(error) from error
                raise

    def rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        """Return what a query finds.

        Raises:
            StorageError: The file cannot be read.
            Damaged: A value has another type than its column: SQLite keeps what somebody writes.
        """
        with self._lock:
            try:
                found = self._db.execute(query, values).fetchall()
            except UnicodeEncodeError:  # half a letter, such as a broken argument: nothing here is called so
                return []
            except UNREADABLE as error:
                raise self._problem(error) from error
        with self.parsing_rows():
            _check_types(found)
        return found

    @contextmanager
    def parsing_rows(self) -> Iterator[None]:
        """Run a block that parses rows; a row that cannot be parsed means that the file is damaged.

        Raises:
            Damaged: A row cannot be parsed.
        """
        try:
            yield
        except PARSE_ERRORS as error:
            self.unparsable = True
            self._damage = f"state {self.path}: is damaged: it holds values that no daemon wrote ({error})"
            raise Damaged(self._damage) from error

    def row(self, query: str, *values: object) -> sqlite3.Row | None:
        """Return the first row that a query finds, or None."""
        found = self.rows(f"{query} LIMIT 1", *values)
        return found[0] if found else None

    def damage(self) -> str:
        """Return why the file cannot be used any longer; empty if no damage is known.

        A new connection looks at the file, because this one keeps pages in memory and would not notice
        damage.
        """
        if self._damage:
            return self._damage
        try:
            if problem := self._replaced_file():
                return f"state {self.path}: {problem}"
            with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)) as another:
                for table in ("target", "window", "decision", "event"):
                    another.execute(f"SELECT * FROM {table} ORDER BY rowid DESC LIMIT 1").fetchone()
        except (OSError, *UNREADABLE) as error:
            self._problem(error)
        return self._damage

    @property
    def file(self) -> tuple[int, int] | None:
        """The identity of the file that was opened."""
        return self._files[0]

    def remove_orphans(self) -> None:
        """Delete the log and its index if their file has gone or is another one now.

        SQLite knows them by their names, and would write what they hold into that other file.

        Raises:
            StorageError: They cannot be deleted.
        """
        now = self._file_identities()
        if now[0] == self._files[0]:
            return
        for was, found, ending in list(zip(self._files, now, PARTS, strict=True))[1:]:
            if was is not None and was == found:
                try:
                    self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
                except OSError as error:
                    raise self._problem(error) from error

    @property
    def damaged(self) -> bool:
        """Whether the content of the file is known to be damaged."""
        return bool(self._damage)

    def _replaced_file(self) -> str:
        """Return which file was deleted or replaced since it was opened; empty if none was."""
        for was, now, what in zip(self._files, self._file_identities(), PARTS.values(), strict=True):
            if was != now:
                return f"{what}has gone" if now is None else f"{what}is another file now"
        return ""

    def _file_identities(self) -> list[tuple[int, int] | None]:
        """Return the identities of the files, in the order of `PARTS`."""
        return [_identity(self.path.with_name(self.path.name + ending)) for ending in PARTS]

    def _roll_back(self) -> None:
        """Roll back the open transaction; SQLite may have done so already, for instance on a full disk."""
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # the connection is closed, or unusable: nothing was written

    def _prepare(self, *, reading: bool, new: bool) -> None:
        """Check that the file is an undamaged store; bring a new or older one to this version's tables.

        Args:
            reading: Whether the file is only read; then it must have this version's tables already.
            new: Whether the file may be empty, and is then made a store.
        """
        self._db.row_factory = sqlite3.Row
        owner, version = self._pragma("application_id"), self._pragma("user_version")
        empty = self.path.stat().st_size == 0 or (owner == APPLICATION and not self._pragma("schema_version"))
        if new and empty:
            self._create()
            version, self.created = VERSION, True
        elif owner != APPLICATION:
            raise StorageError(
                f"state {self.path}: is another program's file, not a store of servetune; give another file"
            )
        if version > VERSION:
            raise StorageError(
                f"state {self.path}: was written by a newer servetune (version {version} of the store, this "
                f"one knows {VERSION}); install that, or give another file"
            )
        if not reading and (found := self._pragma("quick_check")) != "ok":
            raise Damaged(f"state {self.path}: is damaged: {found}")
        self._db.execute("PRAGMA foreign_keys = ON")
        # Who opens a store that must be there gives orders: nothing brings them back after a power failure.
        self._db.execute(f"PRAGMA synchronous = {'NORMAL' if new else 'FULL'}")
        if not reading:
            self._upgrade()
        if (version := self._pragma("user_version")) != VERSION:
            raise StorageError(f"state {self.path}: has the old version {version}; a daemon upgrades it")
        self._add_missing_columns(reading)
        if missing := sorted(_columns_of_this_version() - _columns(self._db)):
            raise Damaged(f"state {self.path}: is damaged: it has no {'.'.join(missing[0])}")
        # Who only reads deletes no windows, and does without the index.
        self._db.execute("PRAGMA query_only = ON" if reading else ADDED_INDEX)

    def _create(self) -> None:
        """Make a store of an empty file. The file says at every moment that it is ours, also when killed."""
        self._db.execute(f"PRAGMA application_id = {APPLICATION}")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")  # not its default everywhere: here may be orders
        self._db.executescript(f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {VERSION};")
        if self._begin is not None:
            self._begin(self._db)
        self._db.execute("COMMIT")

    def _add_missing_columns(self, reading: bool) -> None:
        """Add the columns that did not exist yet when the file was written.

        If the file is only read, it stays as it is: temporary views in place of the tables have the columns.
        """
        if reading:
            for table, names in self._missing_columns().items():
                nothing = ", ".join(f"NULL AS {name}" for name in names)
                self._db.execute(f"CREATE TEMP VIEW {table} AS SELECT *, {nothing} FROM main.{table}")
        elif self._missing_columns():
            with self.writing() as db:  # asked again: another process may have added them since
                for table, names in self._missing_columns().items():
                    for name in names:
                        db.execute(f"ALTER TABLE {table} ADD COLUMN {name} {ADDED[table][name]}")

    def _missing_columns(self) -> dict[str, list[str]]:
        """Return the columns that the tables do not have yet."""
        lacking = {}
        for table, added in ADDED.items():
            there = {row["name"] for row in self._db.execute(f"PRAGMA main.table_info({table})")}
            if there and (names := [name for name in added if name not in there]):
                lacking[table] = names
        return lacking

    def _upgrade(self) -> None:
        """Make an older store one of this version."""
        while self._pragma("user_version") in UPGRADES:
            with self.writing() as db:  # asked again: another process may have upgraded it since
                if (found := self._pragma("user_version")) in UPGRADES:
                    db.execute(UPGRADES[found])
                    db.execute(f"PRAGMA user_version = {found + 1}")

    def _pragma(self, name: str) -> Any:
        return self._db.execute(f"PRAGMA {name}").fetchone()[0]

    def _problem(self, error: Exception) -> StorageError:
        # Text that is not UTF-8 has no error code of SQLite: Python raises the first error for column
        # names and the second for values.
        if isinstance(error, UnicodeDecodeError) or str(error).startswith("Could not decode"):
            self.unparsable = True
            self._damage = f"state {self.path}: is damaged: it holds bytes that are no text"
            return Damaged(self._damage)
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGED:  # the rest says how
            self._damage = f"state {self.path}: {error}"
            return Damaged(self._damage)
        return storage_error(f"state {self.path}: {getattr(error, 'strerror', None) or error}", error)


def storage_error(message: str, cause: Exception) -> StorageError:
    """Return the error for a file that cannot be used: one that says so, where it may pass by itself."""
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    passes = code in PASSING or getattr(cause, "errno", None) in PASSING_ERRORS
    return Unavailable(message) if passes else StorageError(message)


def file_of(found: os.stat_result) -> tuple[int, int]:
    """Return the identity of a file, which it keeps under other names."""
    return found.st_dev, found.st_ino


def is_store(descriptor: int) -> bool:
    """Return whether a file says in its header that it is a store, or is empty, whatever else it holds.

    The header has SQLite's name in its bytes 0 to 15 and the program that owns the file in 68 to 71. If an
    older version was killed when it had just made the file, only the log knows the owner.
    """
    header, size = os.pread(descriptor, 72, 0), os.fstat(descriptor).st_size
    owner = header[68:]
    ours = owner == APPLICATION.to_bytes(4) or (not any(owner) and size <= ONE_PAGE)
    return size == 0 or (header.startswith(b"SQLite format 3\0") and ours)


def _make_private(path: Path) -> None:
    """Create an empty file that only its owner can read, if there is none.

    An existing file is not opened: when a process closes any descriptor of a file, it loses all its locks on
    it. Those of its other connections would go, too, and the next process would delete their log.

    Raises:
        OSError: The file cannot be created, read or written.
    """
    try:
        os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if not os.access(path, os.R_OK | os.W_OK):
            code = errno.EROFS if os.statvfs(path).f_flag & os.ST_RDONLY else errno.EACCES
            raise OSError(code, os.strerror(code)) from None


def _is_writable(path: Path) -> bool:
    """Return whether we can write a file, and others beside it."""
    return os.access(path, os.W_OK) and os.access(Path(os.path.realpath(path)).parent, os.W_OK)


def _read_only(path: Path) -> str:
    """Return the address of a file that is only read, for SQLite.

    It reads what the log holds, if that has its index. Without them it would make both, unless told that
    nobody changes the file.

    Raises:
        StorageError: The log holds something and has no index.
    """
    path = Path(os.path.realpath(path))  # beside which SQLite looks for the log, too
    log, index = (path.with_name(f"{path.name}{ending}") for ending in ("-wal", "-shm"))
    if log.exists() and index.exists():
        return f"{path.as_uri()}?mode=ro"
    if log.exists() and log.stat().st_size:
        fix = f"copy {index.name}, too, or copy both files to a folder that can be written"
        raise StorageError(f"state {path}: its log {log.name} cannot be read without {index.name}; {fix}")
    return f"{path.as_uri()}?mode=ro&immutable=1"


def _columns(db: sqlite3.Connection) -> set[tuple[str, str]]:
    """Return pairs of a table and a column, for all tables."""
    query = (
        "SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'"
    )
    return {(table, column) for table, column in db.execute(query)}


@cache
def _columns_of_this_version() -> frozenset[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA)
        return frozenset(_columns(db))


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file that a path leads to; None if there is none."""
    try:
        return file_of(path.stat())
    except FileNotFoundError:
        return None


def _check_types(rows: list[sqlite3.Row]) -> None:
    """Check that values have the types of their columns.

    Raises:
        ValueError: One has not.
    """
    if not rows:
        return
    for place, name in enumerate(rows[0].keys()):
        if name not in COLUMNS:
            continue
        # Whole columns, by their places: a name is looked up slowly in a row, and readers have many rows.
        values, kind = [row[place] for row in rows], KINDS[COLUMNS[name]]
        if not {*map(type, values)} <= {*kind, type(None)} or any(odd in values for odd in INFINITE):
            raise ValueError(f"{name} is not of the type {COLUMNS[name]}, or infinite")
