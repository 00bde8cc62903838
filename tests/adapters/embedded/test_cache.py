"""The cache that survives kills."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from tuner.adapters.embedded import cache
from tuner.adapters.embedded.cache import cache_folder, cached_folder, run_pip
from tuner.errors import AdapterError, StorageError


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVETUNE_CACHE", str(tmp_path / "cache"))


def write(folder: Path) -> None:
    (folder / "file").write_text("whole")


def test_cache_can_be_moved(tmp_path: Path) -> None:
    """SERVETUNE_CACHE says where it is."""
    assert cache_folder() == tmp_path / "cache"


def test_filled_once() -> None:
    """A folder is filled the first time and found the second."""
    first = cached_folder("thing", write)

    second = cached_folder("thing", lambda folder: pytest.fail("filled twice"))

    assert first == second
    assert (first / "file").read_text() == "whole"


def test_a_failure_leaves_nothing() -> None:
    """If filling fails there is no folder, half or whole, and the next attempt starts from nothing."""

    def fail(folder: Path) -> None:
        write(folder)
        raise AdapterError("no network")

    with pytest.raises(AdapterError):
        cached_folder("thing", fail)

    assert [path.name for path in cache_folder().iterdir()] == ["thing.lock"]
    assert cached_folder("thing", write).is_dir()


def test_remains_of_a_killed_run_are_removed() -> None:
    """What a kill in the middle left is swept by the next run."""
    remains = cache_folder() / "thing.partial-abc"
    remains.mkdir(parents=True)

    cached_folder("thing", write)

    assert not remains.exists()


def test_two_at_once_fill_once() -> None:
    """The second waits for the first and finds its work."""
    entered, fills = threading.Barrier(2), []

    def fill(folder: Path) -> None:
        fills.append(folder)
        write(folder)

    def run() -> None:
        entered.wait()
        cached_folder("thing", fill)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(fills) == 1


def test_unwritable_cache(tmp_path: Path) -> None:
    """The message names the folder and the way out."""
    (tmp_path / "cache").write_text("a file in its place")

    with pytest.raises(StorageError, match="SERVETUNE_CACHE"):
        cached_folder("thing", write)


def test_an_environment_without_pip_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """uv makes such ones; it was said that the Python has no such module."""
    monkeypatch.setattr(cache, "find_spec", lambda _: None)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("was run"))

    with pytest.raises(AdapterError, match=r"pip, which fetches thing==1, .*: uv tool install --with pip '"):
        run_pip(["download", "thing==1"], "thing==1")
