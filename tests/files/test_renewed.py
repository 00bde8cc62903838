"""A value that files hold, read again once they were replaced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.errors import StorageError
from tuner.files.renewed import Renewed


def words(*paths: Path) -> Renewed[list[str]]:
    """The words of some files, of which none may be `bad`."""

    def read() -> list[str]:
        found = [path.read_text() if path.exists() else "bad" for path in paths]
        if "bad" in found:
            raise StorageError(f"{paths[found.index('bad')]} is bad")
        return found

    return Renewed(read, paths)


def write(path: Path, text: str) -> None:
    """Replace a file, as who renews it does."""
    new = path.with_name("new")
    new.write_text(text)
    new.replace(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write(tmp_path / "file", "first")
    return tmp_path / "file"


def test_a_change_is_taken_once_it_rests(file: Path, tmp_path: Path) -> None:
    """Files are replaced one after the other: what is between is not looked at."""
    other = tmp_path / "other"
    write(other, "first")
    kept = words(file, other)

    assert not kept.look()
    write(file, "second")
    assert not kept.look()
    write(other, "second")
    assert not kept.look()
    assert kept.value == ["first", "first"]
    assert kept.look()
    assert kept.value == ["second", "second"]
    assert not kept.look()


def test_what_cannot_be_used_is_said_once_and_leaves_what_was(file: Path) -> None:
    """Each mistake; the next file that can be used is taken."""
    kept = words(file)
    write(file, "bad")
    assert not kept.look()
    with pytest.raises(StorageError, match="file is bad"):
        kept.look()
    assert not kept.look()
    write(file, "bad")
    assert [kept.look() for _ in range(3)] == [False] * 3
    assert kept.value == ["first"]

    write(file, "second")
    assert [kept.look(), kept.look()] == [False, True]
    file.unlink()
    kept.look()
    with pytest.raises(StorageError):
        kept.look()
    assert kept.value == ["second"]


def test_who_asks_for_it_gets_it_now(file: Path) -> None:
    """Whether it rests or not; a mistake is raised whenever somebody asks."""
    kept = words(file)
    assert not kept.read()
    write(file, "second")
    assert kept.read()
    assert kept.value == ["second"]
    write(file, "bad")
    for _ in range(2):
        with pytest.raises(StorageError):
            kept.read()


def test_links_and_files_with_the_same_content(file: Path, tmp_path: Path) -> None:
    """Of a link, what it leads to counts; a file that says the same is no renewal."""
    link = tmp_path / "link"
    link.symlink_to(file)
    kept = words(link)
    write(file, "first")
    assert not kept.read()
    os.utime(file, ns=(1, 1))
    assert not kept.read()
    write(tmp_path / "another", "second")
    link.unlink()
    link.symlink_to(tmp_path / "another")
    assert kept.read()


def test_without_files_it_stays() -> None:
    """Such as a token from the environment."""
    kept = Renewed(object, [])

    assert not kept.look()
    assert not kept.read()
