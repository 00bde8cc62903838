"""Files are written whole, and in the place of files only."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import StorageError
from tuner.files.storage import make_folder_of, write_atomically, write_for_server


def test_what_is_no_file_stays_what_it_is(tmp_path: Path) -> None:
    """Root put a file in the place of `/dev/full` or `/dev/null`, for everybody on the machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(StorageError, match="pipe: it is not a file"):
        write_atomically(pipe, "{}")
    with pytest.raises(StorageError, match="pipe is no file, but a pipe or a device; write"):
        make_folder_of(pipe, "--json")
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_name_that_no_file_can_have_is_refused_before_any_work(tmp_path: Path) -> None:
    """Looking whether the file is there ended in a traceback, as in a folder that may not be entered."""
    with pytest.raises(StorageError, match="File name too long; choose another file"):
        make_folder_of(tmp_path / ("a" * 256), "--json")


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    """What the file is called until it is whole is not longer."""
    file = tmp_path / ("ä" * 127)

    write_atomically(file, "{}")

    assert file.read_text() == "{}"
    assert len(os.listdir(tmp_path)) == 1


def test_the_folder_that_a_link_leads_to_is_checked(tmp_path: Path) -> None:
    """The file is written there, and not beside the link."""
    (tmp_path / "link").symlink_to("missing/file")
    (tmp_path / "nowhere").symlink_to("/proc/x/file")

    assert make_folder_of(tmp_path / "link", "--json") == tmp_path / "missing"
    with pytest.raises(StorageError, match="--json: cannot write to /proc/x: "):
        make_folder_of(tmp_path / "nowhere", "--json")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """`--json /dev/stdout >out.json` put a file in the place of `/dev/stdout`."""
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("before")
    link.symlink_to("file")

    write_atomically(link, "after")

    assert link.is_symlink()
    assert file.read_text() == "after"


def test_who_may_read_a_file_stays(tmp_path: Path) -> None:
    """A server that runs as another user goes on reading its configuration; a token stays secret."""
    for mode in (0o600, 0o664):
        file = tmp_path / f"{mode:o}"
        file.write_text("before")
        file.chmod(mode)

        write_atomically(file, "after")

        assert file.stat().st_mode & 0o777 == mode


ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def of_another(tmp_path: Path) -> Path:
    """A file of another user, which the group may read."""
    other = pwd.getpwnam("nobody")
    file = tmp_path / "models.config"
    file.write_text("before")
    os.chown(file, other.pw_uid, other.pw_gid)
    file.chmod(0o640)
    return file


@ROOT
def test_whose_a_file_is_stays(of_another: Path) -> None:
    """Root gave a file of a server to itself, and the server did not start again."""
    before = of_another.stat()

    write_for_server(of_another, "after")

    after = of_another.stat()
    assert of_another.read_text() == "after"
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


@ROOT
def test_a_file_that_its_server_could_not_read_any_more(
    of_another: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays where we may not give files away, unless everybody may read it. What is ours is written."""

    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refuse)

    with pytest.raises(StorageError, match=r"its server could not read it any more; chmod o\+r"):
        write_for_server(of_another, "after")
    assert of_another.read_text() == "before"
    assert os.listdir(of_another.parent) == [of_another.name]

    write_atomically(of_another, "a result of ours")
    os.chown(of_another, 1234, 1234)
    of_another.chmod(0o644)
    write_for_server(of_another, "after")
    assert of_another.read_text() == "after"


@ROOT
def test_a_group_that_goes_on_reading(of_another: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner before is in the group, so the file may become ours; a number without a name is in none."""
    give = os.fchown

    def of_a_member(descriptor: int, user: int, group: int) -> None:
        if user != -1:
            raise PermissionError
        give(descriptor, user, group)

    monkeypatch.setattr(os, "fchown", of_a_member)

    write_for_server(of_another, "after")
    assert of_another.read_text() == "after"

    os.chown(of_another, 54321, -1)
    with pytest.raises(StorageError, match="its server could not read it any more"):
        write_for_server(of_another, "later")
