"""Files are written whole, and in the place of files only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.errors import StorageError
from tuner.files.storage import make_folder_of, write_atomically


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
