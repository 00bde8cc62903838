"""One daemon per store, whatever name it is given, and no file of others is written."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import pytest

from tuner.control.store.lock import LockFile, locked_store
from tuner.errors import InvalidInput, StorageError, Unavailable

HOLDER = """
import sys
from pathlib import Path
from tuner.control.store.lock import LockFile, locked_store
with LockFile(Path(sys.argv[1])), locked_store(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def take(path: Path) -> None:
    """What a daemon does with its store at first."""
    with LockFile(path), locked_store(path):
        pass


def linked_folder(path: Path) -> Path:
    other = path.parent.with_name("linked")
    other.symlink_to(path.parent)
    return other / path.name


def hard_link(path: Path) -> Path:
    other = path.with_name("other.db")
    other.hardlink_to(path)
    return other


def link(path: Path) -> Path:
    other = path.with_name("other.db")
    other.symlink_to(path)
    return other


def without_lock_file(path: Path) -> Path:
    path.with_name("s.db.lock").unlink()
    return path


def moved_away_from_its_lock_file(path: Path) -> Path:
    return path.rename(path.with_name("other.db"))


@pytest.mark.parametrize(
    ("another_name", "why"),
    [
        (lambda path: path, r"used by another daemon \(process \d+\)"),
        (linked_folder, r"used by another daemon \(process \d+\)"),
        (hard_link, "has a second name"),
        (link, "is a link"),
        (without_lock_file, "used by another daemon"),
        (moved_away_from_its_lock_file, "used by another daemon"),
    ],
)
def test_a_second_daemon_is_refused(tmp_path: Path, another_name: Callable[[Path], Path], why: str) -> None:
    """By whatever name it finds the store; when the first has gone, the store is free."""
    path = tmp_path / "folder" / "s.db"
    path.parent.mkdir()
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        name = another_name(path)
        with pytest.raises((InvalidInput, StorageError), match=why):
            take(name)
        holder.kill()

    if why.startswith("used"):
        take(name)


def test_both_files_are_for_their_owner_only(tmp_path: Path) -> None:
    """From the beginning."""
    take(tmp_path / "s.db")

    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def a_link(path: Path, theirs: Path) -> None:
    path.symlink_to(theirs)


def a_hard_link(path: Path, theirs: Path) -> None:
    path.hardlink_to(theirs)


def a_fifo(path: Path, _: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path, _: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("name", ["s.db", "s.db.lock"])
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (a_link, "is a link"),
        (a_hard_link, "has a second name"),
        (a_fifo, "is not a regular file"),
        (a_folder, "is not a regular file"),
    ],
)
def test_what_is_no_file_of_its_own_is_refused(
    tmp_path: Path, name: str, make: Callable[[Path, Path], None], why: str
) -> None:
    """The store or its lock; whatever it leads to stays as it is."""
    theirs = tmp_path / "theirs"
    theirs.write_text("precious")
    make(tmp_path / name, theirs)

    with pytest.raises(StorageError, match=f"{name}: {why}"):
        take(tmp_path / "s.db")

    assert theirs.read_text() == "precious"
    assert {path.name for path in tmp_path.iterdir()} == {"theirs", name}


def test_a_link_to_nothing_creates_nothing(tmp_path: Path) -> None:
    """Neither as a lock nor as a store."""
    (tmp_path / "s.db").symlink_to(tmp_path / "nothing")

    with pytest.raises(StorageError, match="is a link"):
        take(tmp_path / "s.db")

    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("name", ["s.db", "s.db.lock"])
def test_what_belongs_to_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Even by root."""
    (tmp_path / name).touch()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4321)

    with pytest.raises(StorageError, match=rf"{name}: belongs to \w+, not to user {os.getuid() + 4321}"):
        _ = (
            LockFile(tmp_path / "s.db") if name.endswith("lock") else locked_store(tmp_path / name)
        ).__enter__()


def test_a_file_that_is_no_lock_is_not_overwritten(tmp_path: Path) -> None:
    """It only has the name of one."""
    lock = tmp_path / "s.db.lock"
    lock.write_text("poetry = 1\n")

    with pytest.raises(StorageError, match="another program's file"):
        take(tmp_path / "s.db")

    assert lock.read_text() == "poetry = 1\n"


def test_it_knows_whether_the_store_was_ever_opened(tmp_path: Path) -> None:
    """Over several lives, and from a lock file of an older program, which had only the process."""
    path = tmp_path / "s.db"
    (tmp_path / "s.db.lock").write_text("123\n")
    seen = []
    for opened in (False, True, False):
        with LockFile(path) as lock:
            seen.append(lock.opened)
            if opened:
                lock.note_opened()

    assert seen == [False, False, True]
    assert (tmp_path / "s.db.lock").read_text() == f"{os.getpid()}\nopened\n"


def test_a_lock_file_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    """The next process has to know that there was a store; while another holds the file, nothing is done."""
    path, lock = tmp_path / "s.db", tmp_path / "s.db.lock"
    with LockFile(path) as first:
        first.note_opened()
        lock.unlink()
        first.keep()
        assert lock.read_text() == f"{os.getpid()}\nopened\n"
        with pytest.raises(InvalidInput):
            take(path)
        lock.unlink()
        with LockFile(path) as other:
            first.keep()
            assert not other.opened


def test_a_folder_that_cannot_be_looked_into_ends_no_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as on a network drive that has gone for a moment; the lock is held all the same."""

    def stale(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with LockFile(tmp_path / "s.db") as lock:
        with monkeypatch.context() as gone:
            gone.setattr(os, "stat", stale)
            lock.keep()
        with pytest.raises(InvalidInput):
            take(tmp_path / "s.db")


def test_a_refused_one_leaves_no_descriptor(tmp_path: Path) -> None:
    """Neither does one that was left."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("nothing shows descriptors here")
    before = len(list(descriptors.iterdir()))
    with ExitStack() as held:
        held.enter_context(LockFile(tmp_path / "s.db"))
        held.enter_context(locked_store(tmp_path / "s.db"))
        for _ in range(3):
            with pytest.raises(InvalidInput):
                take(tmp_path / "s.db")

    assert len(list(descriptors.iterdir())) == before


@pytest.mark.parametrize(
    ("number", "there", "kind"),
    [
        (errno.ENOSPC, False, Unavailable),
        (errno.EROFS, True, Unavailable),
        (errno.EROFS, False, StorageError),  # such as /etc under the unit
        (errno.EACCES, True, StorageError),
    ],
    ids=["full", "read-only now", "read-only folder", "forbidden"],
)
def test_what_may_pass_is_told_from_what_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, there: bool, kind: type[StorageError]
) -> None:
    """A disk without room may have some later; a right that is missing, or the wrong folder, is a mistake."""
    if there:
        (tmp_path / "s.db.lock").touch()

    def refuse(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(StorageError) as caught:
            take(tmp_path / "s.db")

    assert type(caught.value) is kind
