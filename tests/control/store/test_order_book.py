"""Orders in the store: they are kept, checked, and about the server that a name stands for."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from tests.builders import SPACE, configuration
from tests.control.store.store_bed import record, state
from tuner.control import Apply, Hold
from tuner.control.decide.orders import Orders
from tuner.control.store.known import current_target
from tuner.control.store.order_book import StoredOrders, orders_of, pause, pin, resume, roll_back, unpin
from tuner.control.store.store import Store
from tuner.errors import InvalidInput, StorageError
from tuner.knobs import Configuration, KnobSpace

GOOD, BETTER = configuration(2), configuration(4)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "s.db")
    store.target("a", "sim://mlp", SPACE, GOOD)
    yield store
    store.close()


def test_orders_are_kept_until_they_are_taken_back(tmp_path: Path, store: Store) -> None:
    """Another process reads them; they outlive the daemon."""
    pause(store, "a", "  release \n of Friday ")
    assert pin(store, "a", {"max_batch_size": 8.0}) == configuration(8)
    with_another = Store(tmp_path / "s.db", reading=True)

    assert orders_of(with_another, "a") == Orders(paused="release of Friday", pinned=configuration(8))
    with_another.close()
    resume(store, "a")
    unpin(store, "a")
    assert orders_of(store, "a") == Orders()
    sentences = [row["sentence"] for row in store.rows("SELECT sentence FROM event ORDER BY id")]
    assert sentences[0] == "paused: release of Friday"
    assert len(sentences) == 4


@pytest.mark.parametrize("order", [lambda s, n: pause(s, n, ""), resume, pin, unpin, roll_back])
def test_orders_for_nobody_are_refused(store: Store, order: Callable[[Store, str], object]) -> None:
    """With the names that there are."""
    with pytest.raises(InvalidInput, match="there is no target 'b'; there are a"):
        order(store, "b")


def test_words_that_are_no_text(store: Store) -> None:
    """Half a letter from a broken argument: nothing is called so, and a reason does without it."""
    with pytest.raises(InvalidInput, match="there is no target"):
        resume(store, "a\udcff")
    pause(store, "a", "by\udcff Ada\x1b")

    assert orders_of(store, "a").paused == "by Ada"


@pytest.mark.parametrize("changes", [{"max_batch_size": 3.0}, {"speed": 1.0}])
def test_a_pin_must_be_possible(store: Store, changes: dict[str, float]) -> None:
    """A value of the knob's grid."""
    with pytest.raises(InvalidInput, match=next(iter(changes))):
        pin(store, "a", changes)


def test_there_must_be_something_to_roll_back(store: Store) -> None:
    """A server that nothing was changed on stays as it is."""
    with pytest.raises(InvalidInput, match=r"^TARGET: a has nothing to roll back"):
        roll_back(store, "a")


def test_the_change_that_led_to_what_runs_is_rolled_back(store: Store) -> None:
    """Also where the server rounds a value; not the last one if somebody else has set something since."""
    for previous, wanted in ((GOOD, BETTER), (BETTER, BETTER), (BETTER, configuration(8, 0.002))):
        change = Apply(configuration=wanted, reason="because")
        decided = record(change, outcome="decided")
        store.changed(store.decided(1, decided, state(previous), kept=True), "applied", wanted)

    def rolled_back(running: Configuration) -> Configuration:
        store.decided(1, record(Hold(reason="x"), 2), state(running), kept=True)
        return roll_back(store, "a")

    assert rolled_back(configuration(8, 0.0020001)) == BETTER
    assert rolled_back(BETTER) == GOOD
    with pytest.raises(InvalidInput, match="nothing to roll back: what it runs is not a change of ours"):
        rolled_back(configuration(16))


def test_a_change_is_rolled_back_also_where_a_knob_was_added_since(store: Store) -> None:
    """Of that nothing was changed, and it stays as it runs."""
    fewer = KnobSpace(SPACE.knobs[:2])
    ran, runs = (Configuration(max_batch_size=size, max_queue_delay=0.0) for size in (2.0, 4.0))
    target = store.target("b", "sim://other", fewer, ran).id
    change = record(Apply(configuration=runs, reason="because"), outcome="decided")
    store.changed(store.decided(target, change, state(ran), kept=True), "applied", runs)

    store.target("b", "sim://other", SPACE, runs.replace(instances=2.0))

    assert roll_back(store, "b") == ran.replace(instances=2.0)


def test_a_rollback_ends_a_pin_in_one_transaction(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the command was killed between two, the server went back, and then to the pin again."""
    change = record(Apply(configuration=BETTER, reason="because"), outcome="decided")
    store.changed(store.decided(1, change, state(GOOD), kept=True), "applied", BETTER)
    pin(store, "a")
    writing, left = store.writing, [None]

    def once() -> AbstractContextManager[sqlite3.Connection]:
        left.pop()  # the process is killed before a second one
        return writing()

    with monkeypatch.context() as patch:
        patch.setattr(store, "writing", once)
        with pytest.raises(IndexError):
            roll_back(store, "a")

    assert orders_of(store, "a") == Orders(rollback=GOOD)


def sentences_of(store: Store) -> list[str]:
    return [row["sentence"] for row in store.rows("SELECT sentence FROM event ORDER BY id")]


def test_orders_are_about_the_server_that_the_name_stands_for_now(store: Store) -> None:
    """Also when its URL was changed, and back."""
    store.target("a", "sim://other", SPACE, BETTER)
    assert pin(store, "a") == BETTER
    store.target("a", "sim://mlp", SPACE, GOOD)

    assert pin(store, "a") == GOOD
    assert current_target(store, "a")["url"] == "sim://mlp"  # type: ignore[index]


def test_a_pin_does_not_go_to_another_server(store: Store) -> None:
    """Nor does a rollback; a pause is about the name, and stays."""
    pin(store, "a")
    pause(store, "a", "by Ada")
    with store.writing() as db:
        db.execute("UPDATE orders SET rollback = pinned")

    store.target("a", "sim://mlp", SPACE, GOOD)
    assert orders_of(store, "a") == Orders(paused="by Ada", pinned=GOOD, rollback=GOOD)
    store.target("a", "sim://other", SPACE, GOOD)

    assert orders_of(store, "a") == Orders(paused="by Ada")
    assert sentences_of(store)[-2:] == [
        f"{words} to {SPACE.format(GOOD)}: that was ordered for another URL"
        for words in ("no longer pinned", "not rolled back")
    ]


def test_a_pin_to_a_value_that_is_gone_ends(store: Store) -> None:
    """The file was changed: an event says so, and a last good configuration with such a value is dropped."""
    pin(store, "a", {"max_batch_size": 8.0})
    with store.writing() as db:
        db.execute("UPDATE target SET last_good = (SELECT pinned FROM orders)")
    knobs = [k if k.name != "max_batch_size" else replace(k, grid=(1, 2, 4)) for k in SPACE.knobs]
    assert store.target("a", "sim://mlp", SPACE, GOOD).state.last_good == dict(configuration(8))

    standing = store.target("a", "sim://mlp", KnobSpace(knobs), GOOD)

    assert orders_of(store, "a") == Orders()
    assert sentences_of(store)[-1].startswith("no longer pinned to max_batch_size=8")
    assert sentences_of(store)[-1].endswith("the knobs have other values now")
    assert standing.state.last_good is None


@pytest.mark.parametrize("grid", [(1, 2), (4, 8)])
def test_orders_stay_where_a_knob_is_added(store: Store, grid: tuple[float, ...]) -> None:
    """It is kept as it runs then, also where that is on no grid: nobody has ordered anything else."""
    fewer, more = KnobSpace(SPACE.knobs[:2]), replace(SPACE.knobs[2], grid=grid, default=grid[0])
    ordered = Configuration(max_batch_size=8, max_queue_delay=0.002)
    store.target("b", "sim://mlp", fewer, Configuration(max_batch_size=2, max_queue_delay=0))
    pin(store, "b", {"max_batch_size": 8.0, "max_queue_delay": 0.002})
    with store.writing() as db:
        db.execute("UPDATE orders SET rollback = pinned")

    store.target("b", "sim://mlp", KnobSpace([*fewer.knobs, more]), configuration(2, 0, 2))

    wanted = ordered.replace(instances=2)
    assert orders_of(store, "b") == Orders(pinned=wanted, rollback=wanted)
    assert not any("the knobs have other values" in sentence for sentence in sentences_of(store))


def test_a_pin_to_what_somebody_set_by_hand_stays(store: Store) -> None:
    """Though it was never a value of the file: it is what the server runs."""
    found = GOOD.replace(max_batch_size=5.0)
    StoredOrders(store, "a").moved(pin(store, "a"), found)

    store.target("a", "sim://mlp", SPACE, found)

    assert orders_of(store, "a").pinned == found


def test_an_order_that_was_given_meanwhile_stays(store: Store) -> None:
    """The daemon strikes out, or moves, the order that it has read, and no other."""
    book = StoredOrders(store, "a")
    first = pin(store, "a")
    second = pin(store, "a", {"max_batch_size": 8.0})

    book.moved(first, BETTER)
    book.done(first)
    assert orders_of(store, "a") == Orders(pinned=second)

    book.moved(second, BETTER)
    assert orders_of(store, "a") == Orders(pinned=BETTER)
    with store.writing() as db:
        db.execute("UPDATE orders SET rollback = pinned")
    book.done(GOOD)
    assert orders_of(store, "a").rollback == BETTER
    book.done(BETTER)
    assert orders_of(store, "a") == Orders(pinned=BETTER)

    unpin(store, "a")
    book.moved(BETTER, GOOD)
    assert orders_of(store, "a") == Orders()


def test_orders_stand_while_the_store_cannot_be_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full or broken disk does not end a pause."""
    pause(store, "a", "by Ada")
    book = StoredOrders(store, "a")
    assert book.read().paused

    def fail(*_: object) -> NoReturn:
        raise StorageError("state s.db: disk I/O error")

    monkeypatch.setattr(store, "rows", fail)
    assert book.read().paused == "by Ada"


def test_a_store_of_the_version_before_is_taken_over(tmp_path: Path, store: Store) -> None:
    """It has no orders yet."""
    path = tmp_path / "s.db"
    store.close()
    with sqlite3.connect(path) as db:
        db.executescript(
            "DROP TABLE orders; ALTER TABLE target DROP COLUMN attached; PRAGMA user_version = 1;"
        )
    db.close()

    again = Store(path)
    assert orders_of(again, "a") == Orders()
    assert current_target(again, "a")["attached"] == 0  # type: ignore[index]
    pause(again, "a", "")
    assert orders_of(again, "a").paused == "by the operator"
    again.close()
