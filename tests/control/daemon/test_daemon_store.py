"""The daemon and its store: what is kept when the store is damaged, deleted or full."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from typing import Any

import pytest

from tests.builders import configuration
from tests.control.daemon.daemon_bed import Bed, Running
from tests.waiting import eventually
from tuner.control.daemon import daemon as daemon_module
from tuner.control.daemon.phase import NOT_STORED
from tuner.control.store.order_book import orders_of, pause, resume
from tuner.control.store.store import Store
from tuner.errors import StorageError


def test_a_damaged_store_is_put_aside(bed: Bed) -> None:
    """The daemon begins again and says so; the damaged file is kept."""
    bed.write(("a", "observe", ""))
    bed.run(windows=1)
    path = bed.folder / "s.db"
    path.write_bytes(path.read_bytes()[:100] + b"garbage" * 1000)

    bed.run(windows=2)

    assert len(bed.rows("SELECT * FROM window")) == 2
    assert len(list(bed.folder.glob("s.db.damaged-*"))) == 1
    assert any("was renamed to" in row["sentence"] for row in bed.rows("SELECT sentence FROM event"))


def test_a_file_that_is_no_store_is_left_alone(bed: Bed) -> None:
    """Such as the daemon's own file: one error, and nothing is renamed or written."""
    bed.write(("a", "observe", ""))
    bed.path.write_text(bed.path.read_text().replace("s.db", "servetune.yaml"))
    before = bed.path.read_text()

    with pytest.raises(StorageError, match="is not a store of servetune; give another file"):
        bed.run(windows=1)

    assert bed.path.read_text() == before
    assert not bed.servers


@pytest.mark.parametrize("damage", ["overwritten", "deleted", "without its log"])
def test_a_store_damaged_while_it_runs_is_replaced(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """All targets go on with a new one from what the server runs; the other is kept, if there is any."""
    monkeypatch.setattr(daemon_module, "CHECK_EVERY", 0.05)
    bed.write(("a", "apply", ""))
    path = bed.folder / "s.db"
    with Running(bed) as keeper:
        eventually(lambda: keeper.workers["a"].turns > 5)
        if damage == "deleted":
            path.unlink()
        elif damage == "without its log":
            (bed.folder / "s.db-wal").unlink()
        else:
            overwrite(bed)
        eventually(lambda: any("started again" in sentence for sentence in bed.said))
        eventually(lambda: "a" in keeper.workers and keeper.workers["a"].turns > 3)

    assert len(bed.rows("SELECT * FROM window")) > 3
    assert len(list(bed.folder.glob("s.db.damaged-*[0-9]"))) == (damage == "overwritten")
    assert bed.rows("SELECT running FROM target")[0]["running"] != "{}"


def overwrite(bed: Bed) -> None:
    for name in ("s.db", "s.db-wal"):
        with (bed.folder / name).open("r+b") as file:
            file.write(os.urandom((bed.folder / name).stat().st_size))


@pytest.mark.parametrize("damage", ["overwritten", "deleted", "deleted while no daemon ran"])
def test_a_paused_target_stays_paused_whatever_becomes_of_the_store(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """The operator's orders outlive it; nothing is changed until the target is resumed."""
    monkeypatch.setattr(daemon_module, "CHECK_EVERY", 0.05)
    bed.write(("a", "observe", ""))
    bed.run(windows=1)
    with closing(Store(bed.folder / "s.db")) as store:
        pause(store, "a", "release")
    bed.write(("a", "apply", ""))
    if damage == "deleted while no daemon ran":
        (bed.folder / "s.db").unlink()
    with Running(bed) as keeper:
        eventually(lambda: "a" in keeper.workers and keeper.workers["a"].turns > 3)
        if damage == "deleted":
            (bed.folder / "s.db").unlink()
        elif damage == "overwritten":
            overwrite(bed)
        if damage != "deleted while no daemon ran":
            eventually(lambda: any("started again" in sentence for sentence in bed.said))
        eventually(lambda: "a" in keeper.workers and keeper.workers["a"].turns > 10)
        assert bed.running() == configuration()
        assert bed.rows("SELECT id FROM decision WHERE action != 'hold'") == []
        with closing(Store(bed.folder / "s.db")) as store:
            assert orders_of(store, "a").paused
            resume(store, "a")
        eventually(lambda: "paused" not in bed.rows("SELECT * FROM decision ORDER BY id")[-1]["reason"])

    assert any("orders were carried over: a" in s or "all targets are paused" in s for s in bed.said)


SENSELESS = {
    "no text": "UPDATE target SET running = CAST(x'7bff7d' AS TEXT)",
    "no configuration": "UPDATE window SET configuration = '{' WHERE id = 2",
}


@pytest.mark.parametrize("change", SENSELESS.values(), ids=SENSELESS)
def test_a_store_that_makes_no_sense_is_put_aside(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Though SQLite finds nothing wrong with the file: what was never written is read at the start."""
    monkeypatch.setattr(daemon_module, "CHECK_EVERY", 0.05)
    bed.write(("a", "apply", ""))
    bed.run(windows=4)
    with closing(sqlite3.connect(bed.folder / "s.db")) as db, db:
        db.execute(change)
    with Running(bed) as keeper:
        eventually(lambda: "a" in keeper.workers and keeper.workers["a"].turns > 3)

    assert len(list(bed.folder.glob("s.db.damaged-*"))) == 1
    assert any("is damaged" in sentence and "was renamed to" in sentence for sentence in bed.said)
    assert min(row["number"] for row in bed.rows("SELECT number FROM window")) == 1


def full_disk(monkeypatch: pytest.MonkeyPatch, method: str) -> threading.Event:
    """The disk is full as long as what is returned is set: this method of the store fails."""
    full, write = threading.Event(), getattr(Store, method)

    def refuse(*arguments: Any, **others: Any) -> Any:
        if full.is_set():
            raise StorageError("state s.db: database or disk is full")
        return write(*arguments, **others)

    monkeypatch.setattr(Store, method, refuse)
    return full


def room_again(bed: Bed) -> int:
    """How often an event says that the store can be written again, and how many turns were lost till then."""
    lost = sum("this turn is lost" in sentence for sentence in bed.said)
    again = f"the store can be written again; {lost} turns were lost"
    return [row["sentence"] for row in bed.rows("SELECT sentence FROM event")].count(again)


def test_what_cannot_be_written_down_is_not_done(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: the server stays as it is until there is room again. It is one error, however long.

    Meanwhile its phase, by which the live page and an alert go, is not `running`.
    """
    bed.write(("a", "apply", ""))
    full = full_disk(monkeypatch, "decided")
    full.set()
    with Running(bed) as keeper:
        eventually(lambda: sum("this turn is lost" in sentence for sentence in bed.said) >= 3)
        assert bed.running() == configuration()
        assert sum("this turn is lost" in sentence for sentence in bed.errors) == 1
        assert keeper.workers["a"].phase == f"{NOT_STORED}: state s.db: database or disk is full"
        full.clear()
        eventually(lambda: keeper.workers["a"].turns > 3)
        assert keeper.workers["a"].phase == "running"

    assert room_again(bed) == 1
    assert bed.running() != configuration()


def test_a_full_disk_is_told_also_where_the_server_was_away_meanwhile(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So long that it is attached anew, which takes a store that can be written."""
    bed.write(("a", "apply", ""))
    decisions, targets = full_disk(monkeypatch, "decided"), full_disk(monkeypatch, "target")
    away, in_vain = bed.folder / "a.away", "is full; trying again until it works"
    decisions.set()
    with Running(bed) as keeper:
        eventually(lambda: sum("this turn is lost" in sentence for sentence in bed.said) >= 2)
        targets.set()
        away.touch()
        eventually(lambda: "a: no answer; trying again until it works" in bed.said)
        away.unlink()
        eventually(lambda: any(sentence.endswith(in_vain) for sentence in bed.errors))
        decisions.clear()
        targets.clear()
        eventually(lambda: keeper.workers["a"].turns > 0)

    assert room_again(bed) == 1
