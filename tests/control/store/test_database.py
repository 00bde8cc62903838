"""The daemon's SQLite file: several connections and processes, and what becomes of it while it is open."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.control.store.store import Store
from tuner.errors import StorageError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "s.db")
    yield store
    store.close()


VISITOR = """
import sys
from pathlib import Path
from tuner.control.store.store import Store
visitor = Store(Path(sys.argv[1]), existing=True)
print(*(row["sentence"] for row in visitor.rows("SELECT sentence FROM event ORDER BY id")), sep=",")
visitor.note(sys.argv[2])
visitor.close()
"""


def visit(store: Store, sentence: str) -> str:
    """Another process reads all events and notes one, as the command line does; returns what it read."""
    command = [sys.executable, "-c", VISITOR, str(store.path), sentence]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_several_processes_see_the_same(store: Store) -> None:
    """Two connections in the daemon, and commands that come and go: nobody takes the log from another."""
    store.note("one")
    reader = Store(store.path, existing=True)

    assert visit(store, "two") == "one"
    store.note("three")
    assert visit(store, "four") == "one,two,three"
    seen = [[row["sentence"] for row in s.rows("SELECT sentence FROM event")] for s in (store, reader)]

    assert seen == [["one", "two", "three", "four"]] * 2
    assert store.damage() == reader.damage() == ""
    descriptors = Path("/proc/self/fd")
    if descriptors.exists():
        open_files = [os.readlink(path) for path in descriptors.iterdir() if path.is_symlink()]
        assert not [name for name in open_files if str(store.path) in name and "(deleted)" in name]
    reader.close()


def test_an_order_outlasts_a_power_failure(store: Store) -> None:
    """Commands and the web server, which open a store that must be there, wait until the disk has it.

    So does who makes a store that begins with orders.
    """
    begun: list[int] = []
    other = Store(store.path, existing=True)
    normal, full = (one.rows("PRAGMA synchronous")[0][0] for one in (store, other))
    other.close()
    new = store.path.with_name("new.db")
    Store(new, begin=lambda db: begun.extend(db.execute("PRAGMA synchronous").fetchone())).close()

    assert (normal, full, begun) == (1, 2, [2])


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_a_log_that_is_taken_away_is_noticed(store: Store, ending: str) -> None:
    """What is written from then on, others would not see."""
    store.note("one")
    log = store.path.with_name(store.path.name + ending)
    log.unlink()
    assert "log has gone" in store.damage()

    log.touch()

    assert "log is another file now" in store.damage()


def test_a_file_that_must_not_be_written_is_told(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the words of the system."""
    monkeypatch.setattr(os, "access", lambda *_: False)

    with pytest.raises(StorageError, match="Permission denied"):
        Store(store.path)


def test_a_link_to_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    """The file that it leads to is for its owner only, too."""
    link, real = tmp_path / "link.db", tmp_path / "real.db"
    link.symlink_to(real)

    Store(link).close()

    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def files_of(store: Path) -> list[str]:
    """The names of a store's files."""
    return sorted(path.name for path in store.parent.iterdir())


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be written, as on a file system that became read-only."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and access(path, mode))


@pytest.mark.usefixtures("read_only")
def test_a_store_that_nobody_can_write_is_read(store: Store) -> None:
    """A copy, or one whose daemon has ended: SQLite would make a log beside it, and is told not to."""
    store.note("one")
    store.close()

    reader = Store(store.path, reading=True)
    assert [row["sentence"] for row in reader.rows("SELECT sentence FROM event")] == ["one"]
    assert files_of(store.path) == ["s.db"]
    reader.close()
    with pytest.raises(StorageError, match="Permission denied"):
        Store(store.path, existing=True)


@pytest.mark.usefixtures("read_only")
def test_what_a_log_holds_is_read_where_nobody_can_write(store: Store) -> None:
    """One whose daemon was killed, or still runs."""
    store.note("one")

    reader = Store(store.path, reading=True)
    store.note("two")

    assert [row["sentence"] for row in reader.rows("SELECT sentence FROM event")] == ["one", "two"]
    reader.close()


@pytest.mark.usefixtures("read_only")
def test_a_copy_without_the_index_of_its_log(store: Store, tmp_path: Path) -> None:
    """A log that holds nothing is not needed; one that holds something cannot be read, and it is said why."""
    store.note("one")
    copy = tmp_path / "copy" / "s.db"
    copy.parent.mkdir()
    for name in ("s.db", "s.db-wal"):
        shutil.copy(store.path.with_name(name), copy.with_name(name))

    with pytest.raises(StorageError, match="-shm, too, or copy both files to a folder that can be written"):
        Store(copy, reading=True)

    store.close()
    shutil.copy(store.path, copy)
    copy.with_name("s.db-wal").write_bytes(b"")
    reader = Store(copy, reading=True)
    assert [row["sentence"] for row in reader.rows("SELECT sentence FROM event")] == ["one"]
    reader.close()


def test_a_store_of_somebody_else_is_denied(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system says it; SQLite says only that it is unable to open the file."""
    monkeypatch.setattr(os, "access", lambda *_: False)

    with pytest.raises(StorageError, match="Permission denied"):
        Store(store.path, reading=True)
