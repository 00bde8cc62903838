"""What an operator wants of a target: pause, pin, roll back; given from anywhere, and kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from tests.builders import (
    OBJECTIVE,
    SPACE,
    ScriptedAgent,
    changed,
    configuration,
    measurement,
    taken_back,
    turn,
)
from tests.control.daemon.daemon_bed import Bed, Running, eventually
from tests.control.daemon.file_server import FileServer
from tests.control.drive.driver_bed import Book, FakeClock, FakeServer, Log, drive, raising
from tests.control.store.store_bed import record, state
from tuner.adapters.backend import ApplyReport
from tuner.cli.app import app
from tuner.control import Apply, ControlLoop, Hold, Rollback
from tuner.control.decide.event import InForce, Ordered
from tuner.control.decide.orders import Orders
from tuner.control.store.journal import recount
from tuner.control.store.order_book import StoredOrders, orders_of, pause, pin, resume, roll_back, unpin
from tuner.control.store.store import Store
from tuner.errors import InvalidInput, StorageError, TimedOut
from tuner.knobs import ApplyCost, Configuration, KnobSpace

GOOD, BETTER = configuration(2), configuration(4)


def loop_with(*proposals: Configuration, **orders: Any) -> ControlLoop:
    loop = ControlLoop(SPACE, OBJECTIVE, ScriptedAgent(*proposals))
    loop.observe(Ordered(Orders(**orders)))
    return loop


def test_paused_means_that_nothing_is_changed() -> None:
    """Not even a change on probation that breaks the SLO; what is seen is learned all the same."""
    loop = loop_with(GOOD)
    turn(loop, 10.0, measurement(0.020))
    loop.observe(InForce(configuration()))
    loop.observe(Ordered(Orders(paused="by Ada")))

    held = turn(loop, 20.0, measurement(0.050, running=GOOD, end=20.0))
    loop.observe(Ordered(Orders()))
    resumed = turn(loop, 30.0, measurement(0.050, running=GOOD, end=30.0))

    assert isinstance(held, Hold)
    assert held.reason == "paused: by Ada"
    assert loop.memory.at(loop.level).tried == [SPACE.encode(c) for c in (configuration(), GOOD)]
    assert isinstance(resumed, Rollback)


def test_what_is_pinned_is_applied_and_kept() -> None:
    """Whatever the agent would like, and after a restart of the server."""
    loop = loop_with(BETTER, BETTER, pinned=GOOD)

    first = turn(loop, 10.0, measurement(0.020))
    second = turn(loop, 20.0, measurement(0.090, running=GOOD, end=20.0))
    restored = loop.restoration(configuration())

    assert isinstance(first, Apply)
    assert (first.configuration, first.restores) == (GOOD, True)
    assert second == Hold(reason="pinned by the operator")
    assert restored is not None
    assert restored.configuration == GOOD


def test_what_is_nearest_to_a_pin_is_not_what_is_pinned() -> None:
    """The grids need not contain what the server runs; a server and a file may round."""
    loop = loop_with(pinned=BETTER)

    near = turn(loop, 10.0, measurement(0.020, running=configuration(5)))
    rounded = turn(loop, 20.0, measurement(0.020, running=configuration(4.0000001), end=20.0))
    restored = loop.restoration(configuration(5))

    assert isinstance(near, Apply)
    assert near.configuration == BETTER
    assert rounded == Hold(reason="pinned by the operator")
    assert restored is not None
    assert restored.configuration == BETTER


def test_a_pin_of_a_knob_without_effect_is_kept() -> None:
    """A server without batching has no delay, whatever was pinned."""
    batch, delay, instances = SPACE.knobs
    space = KnobSpace([batch, replace(delay, idle_when=("max_batch_size", 1)), instances])
    loop = ControlLoop(space, OBJECTIVE, ScriptedAgent())
    loop.observe(Ordered(Orders(pinned=configuration(1, 0.002))))

    assert isinstance(turn(loop, 10.0, measurement(0.020)), Hold)


class RoundingServer(FakeServer):
    """It has coarser delays than the grid; every change is a reload."""

    reloads = 0

    def apply(self, wanted: Configuration) -> ApplyReport:
        self.reloads += 1
        rounded = wanted.replace(max_queue_delay=round(wanted["max_queue_delay"], 2))
        return super().apply(rounded)


def test_a_server_that_rounds_what_is_pinned_is_changed_once() -> None:
    """The pin moves to what it has made of it."""
    server, book = RoundingServer(FakeClock(), lambda _: 0.020), Book(pinned=configuration(4, 0.0085))
    driver, heard = drive(server, orders=book)

    records = [driver.step() for _ in range(4)]

    assert [record.outcome for record in records] == ["applied", "held", "held", "held"]
    assert server.reloads == 1
    assert server.running == book.orders.pinned == configuration(4, 0.01)
    assert heard == []


def test_a_pin_is_applied_to_a_server_that_runs_what_is_on_no_grid() -> None:
    """Once; and if somebody else sets such a value again, the pin moves there."""
    server, book = FakeServer(FakeClock(), lambda _: 0.020), Book(pinned=BETTER)
    server.running = configuration(5)
    driver, heard = drive(server, orders=book)

    outcomes = [driver.step().outcome for _ in range(3)]
    assert (outcomes, server.running) == (["applied", "held", "held"], BETTER)
    server.running = configuration(3.5)
    outcomes = [driver.step().outcome for _ in range(2)]

    assert (outcomes, server.running) == (["held", "held"], configuration(3.5))
    assert book.orders == Orders(pinned=configuration(3.5))
    assert ["somebody else" in sentence for sentence in heard] == [True]


def test_a_pin_whose_change_is_not_seen_to_end_is_not_taken_for_applied() -> None:
    """What runs is nearest to it; it is applied in a later turn."""
    server, log = FakeServer(FakeClock(), lambda _: 0.020), Log()
    server.running = configuration(5)
    driver, _ = drive(server, orders=Book(pinned=BETTER), journal=log)
    apply, server.apply = server.apply, raising(TimedOut("no answer"))  # type: ignore[method-assign, assignment]

    driver.step()
    server.apply = apply  # type: ignore[method-assign]
    driver.step()

    assert [detail for what, detail in log.lines if what == "changed"] == [("failed", 5.0), ("applied", 4.0)]
    assert server.running == BETTER


def test_a_paused_server_that_was_restarted_is_left_alone() -> None:
    """The operator may be working on it."""
    loop = loop_with()
    turn(loop, 10.0, measurement(0.015, running=GOOD))
    loop.observe(Ordered(Orders(paused="by Ada", pinned=GOOD)))

    assert loop.restoration(configuration()) is None


def test_a_pin_ends_the_probation() -> None:
    """Whoever pins what runs has judged it; a late rollback after `unpin` would surprise."""
    loop = loop_with(BETTER)
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration())
    loop.observe(Ordered(Orders(pinned=BETTER)))
    turn(loop, 20.0, measurement(0.045, running=BETTER, end=20.0))
    loop.observe(Ordered(Orders()))

    decision = turn(loop, 30.0, measurement(0.045, running=BETTER, end=30.0))

    assert not isinstance(decision, Rollback)


def test_a_rollback_comes_before_a_pause_and_is_not_taken_back_at_once() -> None:
    """The operator's last word counts; the agent does not go there again for a while."""
    loop = loop_with(BETTER, BETTER, BETTER)
    turn(loop, 10.0, measurement(0.020))
    loop.observe(InForce(configuration()))
    loop.observe(Ordered(Orders(paused="by Ada", rollback=configuration())))

    decision = turn(loop, 20.0, measurement(0.010, running=BETTER, end=20.0))
    taken_back(loop, BETTER)
    loop.observe(Ordered(Orders()))
    after = [turn(loop, end, measurement(0.020, end=end)) for end in (30.0, 40.0)]

    assert decision == Rollback(configuration=configuration(), reason="the operator rolled back")
    assert all(isinstance(d, Hold) for d in after)


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


def sentences_of(store: Store) -> list[str]:
    return [row["sentence"] for row in store.rows("SELECT sentence FROM event ORDER BY id")]


def test_orders_are_about_the_server_that_the_name_stands_for_now(store: Store) -> None:
    """Also when its URL was changed, and back."""
    store.target("a", "sim://other", SPACE, BETTER)
    assert pin(store, "a") == BETTER
    store.target("a", "sim://mlp", SPACE, GOOD)

    assert pin(store, "a") == GOOD
    assert store.current("a")["url"] == "sim://mlp"  # type: ignore[index]


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
    assert again.current("a")["attached"] == 0  # type: ignore[index]
    pause(again, "a", "")
    assert orders_of(again, "a").paused == "by the operator"
    again.close()


def command(bed: Bed, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--state", str(bed.folder / "s.db")])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_paused_target_stays_as_it_is(bed: Bed) -> None:
    """Also over a new life of the daemon; it is tuned again when resumed."""
    bed.write(("a", "observe", ""))
    bed.run(windows=1)
    assert command(bed, "pause", "a", "--why", "a test") == "a is paused\n"
    bed.write(("a", "apply", ""))

    bed.run(windows=6)
    assert bed.running() == configuration()
    reasons = {row["reason"] for row in bed.rows("SELECT reason FROM decision")}
    assert reasons == {"only observing", "paused: a test"}

    command(bed, "resume", "a")
    bed.run(windows=6)
    assert bed.running() != configuration()


def test_a_pinned_target_runs_what_it_is_pinned_to(bed: Bed) -> None:
    """It is applied outside the maintenance windows, too: a person has asked for it."""
    bed.write(("a", "observe", ""))
    bed.run(windows=1)
    printed = command(bed, "pin", "a", "--set", "max_batch_size=16", "--set", "max_queue_delay=10ms")
    assert printed == (
        "a is pinned to instances=1 max_batch_size=16 max_queue_delay=10ms; "
        "it takes effect in mode apply, not in observe\n"
    )
    bed.write(("a", "apply", "maintenance: [{from: '02:00', to: '03:00'}]"))
    bed.now = lambda: 1_700_000_000.0  # 22:13 UTC

    bed.run(windows=4)

    assert bed.running() == configuration(16, 0.01)
    outcomes = [row["outcome"] for row in bed.rows("SELECT outcome FROM decision ORDER BY id")]
    assert outcomes == ["held", "applied", "held", "held", "held"]


@pytest.mark.parametrize("mode", ["recommend", "apply"])
def test_an_order_says_whether_its_mode_lets_it_change_anything(bed: Bed, mode: str) -> None:
    """It is the mode of the file with which the target was last attached."""
    bed.write(("a", "apply", ""))
    bed.run(windows=12)
    bed.write(("a", mode, ""))
    bed.run(windows=1)

    pinned, back = command(bed, "pin", "a"), command(bed, "rollback", "a")

    assert ("; it takes effect in mode apply, not in recommend\n" in pinned) == (mode == "recommend")
    assert (", but only in mode apply, not in recommend\n" in back) == (mode == "recommend")


def test_a_pin_moves_to_what_somebody_else_sets(bed: Bed) -> None:
    """Two operators: the tuner does not take sides, and says so."""
    bed.write(("a", "apply", ""))
    bed.run(windows=1)
    FileServer(bed.folder / "a").set(configuration(4))
    bed.run(windows=1)
    command(bed, "pin", "a")
    with Running(bed) as keeper:
        eventually(lambda: keeper.workers["a"].turns > 2)
        bed.servers["a"].set(configuration(16, 0.01, 2))
        eventually(lambda: any("it is pinned to that now" in sentence for sentence in bed.said))
        turns = keeper.workers["a"].turns
        eventually(lambda: keeper.workers["a"].turns > turns + 3)

    assert bed.running() == configuration(16, 0.01, 2)


def test_an_operator_rolls_back(bed: Bed) -> None:
    """Once: the server goes back to what ran before, and the order is done."""
    bed.write(("a", "apply", ""))
    bed.run(windows=12)
    command(bed, "pause", "a")
    printed = command(bed, "rollback", "a")
    last = bed.rows(
        "SELECT * FROM decision WHERE outcome = 'applied' AND action = 'apply' AND previous != configuration "
        "AND configuration = (SELECT running FROM target) ORDER BY id DESC"
    )[0]

    bed.run(windows=2)

    assert printed.startswith("a goes back to ")
    rolled, held = bed.rows("SELECT * FROM decision ORDER BY id DESC LIMIT 2")[::-1]
    assert (rolled["action"], rolled["outcome"]) == ("roll back", "applied")
    assert rolled["configuration"] == last["previous"]
    assert held["reason"] == "paused: by the operator"
    assert bed.rows("SELECT rollback FROM orders")[0]["rollback"] is None


def test_changes_of_an_earlier_life_count(bed: Bed) -> None:
    """A daemon that is started again and again makes no more reloads an hour for that."""
    bed.now = lambda: 1_700_000_000.0
    bed.write(("a", "apply", ""))
    bed.run(windows=12)
    made = len(bed.rows("SELECT * FROM decision WHERE outcome = 'applied'"))
    loop = loop_with()
    counted = []
    loop.memory.count_change = lambda now, cost: counted.append((now, cost))  # type: ignore[method-assign]

    store = bed.store()
    recount(store, 1, loop, 500.0, bed.now() + 60.0)
    recount(store, 1, loop, 500.0, bed.now() + 3601.0)
    store.close()

    assert made > 0
    assert len(counted) == made
    assert {now for now, _ in counted} == {440.0}
    assert {cost for _, cost in counted} <= {ApplyCost.RELOAD, ApplyCost.IN_PLACE}


def test_orders_need_a_store(tmp_path: Path) -> None:
    """None is made by mistake."""
    result = CliRunner().invoke(app, ["pause", "a", "--state", str(tmp_path / "none.db")])

    assert isinstance(result.exception, StorageError)
    assert not (tmp_path / "none.db").exists()
