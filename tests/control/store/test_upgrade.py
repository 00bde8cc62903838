"""A store that an older program wrote: it opens, nothing in it is lost, and new windows go into it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.builders import SPACE, configuration
from tests.control.store.store_bed import APPLY, plan_of_deletion, record, state
from tuner.control.store.database import Database
from tuner.control.store.history import history, windows
from tuner.control.store.order_book import idle_mode
from tuner.control.store.store import Store
from tuner.measurement import QUANTITIES

DUMP = Path(__file__).with_name("store_of_version_3.sql")
"""Four windows and decisions in a store of version 3, whose columns were written down one by one."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of that version."""
    path = tmp_path / "s.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(DUMP.read_text())
    return path


def read(path: Path, ask: Callable[[Store], Any]) -> Any:
    with closing(Store(path, reading=True)) as store:
        return ask(store)


def test_the_history_of_an_old_store_is_read(old: Path) -> None:
    """Whoever only reads leaves the file as it is."""
    before = old.read_bytes()

    found = read(old, lambda store: history(store, holds=True))

    assert [one.outcome for one in found] == ["held", "applied", "held", "failed"]
    last = found[-1].model_dump()
    assert (last["rate"], last["failures"], last["cost"], last["kept"]) == (200.0, 0, 0.8, True)
    latencies = {"mean": 0.012, "p50": 0.0096, "p95": 0.024, "p99": 0.0336}
    assert last["latencies"] == pytest.approx(latencies)
    assert read(old, lambda store: idle_mode(store, "mlp")) == ""  # it was not written down then
    assert old.read_bytes() == before


def test_an_old_store_is_gone_on_with(old: Path) -> None:
    """The daemon finds its target where it was, and writes windows that are read beside the old ones."""
    with closing(Store(old)) as store:
        standing = store.target("mlp", "sim://mlp", SPACE, configuration())
        assert (standing.state.window, standing.state.current) == (4, dict(configuration(4, 0.002)))
        store.decided(standing.id, record(APPLY, 5), state(window=5), kept=True)

    assert "USING INDEX decision_window" in read(old, plan_of_deletion)
    rows = read(old, lambda store: [row.model_dump() for row in windows(store, "mlp", 10)])

    assert [row["number"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["latencies"]["p95"] for row in rows] == [0.04, 0.04, 0.018, 0.024, 0.020]
    assert [row["requests"] for row in rows] == [1000] * 5
    new = {quantity.name for quantity in QUANTITIES if f"{quantity.name} " not in DUMP.read_text()}
    assert new >= {"queue_mean", "batch_mean"}
    assert [row[name] for row in rows[:4] for name in new] == [None] * 4 * len(new)


def test_two_processes_upgrade_a_store_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a daemon and an order beside it: what one finds done already is no damage."""
    path, ask, asked = tmp_path / "s.db", Database._pragma, list[str]()
    Store(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.executescript("ALTER TABLE target DROP COLUMN attached; PRAGMA user_version = 2;")

    def pragma(self: Database, name: str) -> Any:
        found = ask(self, name)
        asked.append(name)
        if name == "user_version" and asked.count(name) == 2:  # it is to be upgraded, and not locked yet
            Store(path).close()
        return found

    monkeypatch.setattr(Database, "_pragma", pragma)
    Store(path).close()

    monkeypatch.undo()
    with closing(Store(path, reading=True)) as store:
        assert store.rows("SELECT attached FROM target") == []
