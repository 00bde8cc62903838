"""A store into which somebody wrote: reading it ends with a sentence that says so."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.builders import SPACE, configuration
from tests.control.store.store_bed import APPLY, entered, record, state
from tuner.control.store.history import events, explain, history
from tuner.control.store.order_book import orders_of, pin
from tuner.control.store.store import Store
from tuner.control.store.unfinished import unfinished_change, unjudged_change
from tuner.errors import InvalidInput, StorageError


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a store of forty windows."""
    path = tmp_path_factory.mktemp("store") / "s.db"
    with closing(Store(path)) as store:
        target = entered(store)
        for number in range(40):
            store.decided(
                target, record(APPLY, number, outcome="recommended"), state(window=number), kept=True
            )
            store.note("as usual", target)
        pin(store, "a")
    return path.read_bytes()


def read(path: Path) -> None:
    """What `tuner history` and `tuner explain` do."""
    with closing(Store(path, reading=True)) as store:
        for entry in history(store, count=30, holds=True):
            assert entry.model_dump()
            assert entry.change() is not None
        explain(store, 20)
        events(store, count=20)
        store.damage()


def go_on(path: Path) -> None:
    """What the daemon does."""
    with closing(Store(path)) as store:
        target = store.target("a", "sim://mlp", SPACE, configuration()).id
        unfinished_change(store, target)
        unjudged_change(store, target)
        orders_of(store, "a")
        store.decided(target, record(APPLY, 99, outcome="recommended"), state(window=99), kept=True)
        store.note("on", target)
        store.prune(1.0)
        store.damage()


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_written_into_it_ends_in_a_sentence(tmp_path: Path, sound: bytes, seed: int) -> None:
    """Some bytes or a page of them, anywhere: all goes on, or is refused with one clear error."""
    rng, path = np.random.default_rng(seed), tmp_path / "s.db"
    for _ in range(5):
        content = bytearray(sound)
        for _ in range(int(rng.integers(1, 4))):
            size = int(rng.choice([1, 8, 200, 4000]))
            begin = int(rng.integers(0, len(content) - size))
            content[begin : begin + size] = rng.bytes(size)
        for use in (read, go_on):
            for name in ("s.db", "s.db-wal", "s.db-shm"):
                path.with_name(name).unlink(missing_ok=True)
            path.write_bytes(content)
            try:
                use(path)
            except StorageError as error:
                assert str(path) in str(error)  # noqa: PT017 - it may as well go on
            except InvalidInput as error:
                assert "there is no" in str(error)  # noqa: PT017 - the rows are gone


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE decision SET configuration = '{'",
        "UPDATE decision SET configuration = '[1]'",
        "UPDATE decision SET reason = CAST(x'ff' AS TEXT)",
        "UPDATE target SET knobs = '[{}]'",
        "UPDATE event SET time = 'late'",
        "UPDATE window SET number = 'one'",
        "UPDATE decision SET configuration = replace(configuration, ': 1', ': 1e999')",
        "UPDATE decision SET configuration = printf('%.3000c', '[')",
        "ALTER TABLE decision RENAME COLUMN reason TO season",
    ],
)
def test_what_was_never_written_is_told(tmp_path: Path, sound: bytes, change: str) -> None:
    """SQLite finds nothing wrong with the file."""
    path = tmp_path / "s.db"
    path.write_bytes(sound)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(change)

    with pytest.raises(StorageError, match="is damaged: it h"):
        read(path)
