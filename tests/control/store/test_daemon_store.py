"""The store of a daemon: whose file it is, what is set aside, and what becomes of the orders."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.builders import SPACE, configuration
from tuner.control.decide.orders import Orders
from tuner.control.store import daemon_store
from tuner.control.store.daemon_store import DaemonStore
from tuner.control.store.lock import locked_store
from tuner.control.store.order_book import orders_of, pause, pin, resume, unpin
from tuner.control.store.schema import VERSION
from tuner.control.store.store import Store
from tuner.errors import InvalidInput, StorageError, Unavailable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with a paused target."""
    path = tmp_path / "s.db"
    with closing(Store(path)) as store:
        give_orders(store)
        for number in range(200):
            store.note(f"event {number}")
    return path


def give_orders(store: Store) -> None:
    store.target("a", "sim://mlp", SPACE, configuration())
    store.target("b", "sim://mlp", SPACE, configuration())
    pause(store, "a", "release")
    pin(store, "a", {"max_batch_size": 8.0})


ORDERED = Orders(paused="release", pinned=configuration(8))


class Life:
    """A daemon's store, and what was said about it."""

    def __init__(self, path: Path) -> None:
        self.said: list[str] = []
        self.store = DaemonStore(path, now=lambda: 1_700_000_000.0, say=self.said.append)

    @contextmanager
    def opened(self) -> Iterator[Store]:
        with self.store.opened(["a", "b"]) as store:
            yield store


@contextmanager
def life(path: Path) -> Iterator[Life]:
    one = Life(path)
    with one.store:
        yield one


def overwrite(path: Path, begin: int) -> None:
    """Write nonsense into a file, and its log, from a place on."""
    for one in (path, path.with_name(path.name + "-wal")):
        if one.exists():
            content = one.read_bytes()
            one.write_bytes(content[:begin] + b"\xa5" * (len(content) - begin))


def text(path: Path) -> None:
    path.write_text("state: s.db\ntargets: []\n" * 300)


def short_text(path: Path) -> None:
    path.write_text("x")


def other_program(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.executescript("PRAGMA application_id = 77; PRAGMA user_version = 3; CREATE TABLE mine (x);")


def other_program_without_a_number(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE TABLE mine (x);")


def damaged_other_program(path: Path) -> None:
    other_program(path)
    overwrite(path, 100)


def newer_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")


def damaged_header(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(b"\xa5" * 100 + content[100:])


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (text, "not a store of servetune"),
        (short_text, "not a store of servetune"),
        (damaged_header, "not a store of servetune"),
        (other_program, "not a store of servetune"),
        (other_program_without_a_number, "not a store of servetune"),
        (damaged_other_program, "not a store of servetune"),
        (newer_version, r"was written by a newer servetune \(version 4"),
    ],
)
def test_what_is_not_a_damaged_store_of_ours_stays(
    path: Path, make: Callable[[Path], None], why: str
) -> None:
    """One clear error; the file keeps its name and its content."""
    make(path)
    before = path.read_bytes()

    with life(path) as daemon, pytest.raises(StorageError, match=why) as caught, daemon.opened():
        pass

    assert path.read_bytes() == before
    assert {one.name for one in path.parent.iterdir()} <= {"s.db", "s.db.lock", "s.db-wal", "s.db-shm"}
    assert "\n" not in str(caught.value)


def test_a_store_that_somebody_locks_stays(path: Path) -> None:
    """It is in use, not damaged, and may be free later."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        with life(path) as daemon, pytest.raises(Unavailable, match="locked"), daemon.opened():
            pass

    assert [one.name for one in path.parent.glob("*damaged*")] == []


@pytest.mark.parametrize("there", [True, False])
def test_a_disk_without_room_may_have_some_later(path: Path, there: bool) -> None:
    """The store stays as it is, and the error says that trying again may do."""
    if not there:
        path.unlink()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with life(path) as daemon, pytest.raises(Unavailable), daemon.opened():
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    with life(path) as later, later.opened() as store:
        assert orders_of(store, "a") == (ORDERED if there else Orders())
    assert later.said == []


def torn(path: Path) -> None:
    """The pages of the events; the orders can still be read."""
    with closing(sqlite3.connect(path)) as db:
        root = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'event'").fetchone()[0]
        size = db.execute("PRAGMA page_size").fetchone()[0]
    content = bytearray(path.read_bytes())
    content[(root - 1) * size : root * size] = b"\xa5" * size
    path.write_bytes(content)


def too_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4096])


@pytest.mark.parametrize("damage", [torn, too_short])
def test_orders_are_salvaged_from_a_damaged_store(path: Path, damage: Callable[[Path], None]) -> None:
    """It is renamed, and the new one has them."""
    damage(path)
    with life(path) as daemon, daemon.opened() as store:
        assert orders_of(store, "a") == ORDERED
        assert orders_of(store, "b") == Orders()

    assert path.with_name("s.db.damaged-20231114-221320").exists()
    assert any("orders were carried over: a" in sentence for sentence in daemon.said)


@pytest.mark.parametrize("lost", [lambda path: overwrite(path, 100), Path.unlink], ids=["damaged", "deleted"])
def test_targets_whose_orders_are_lost_start_paused(path: Path, lost: Callable[[Path], None]) -> None:
    """Until somebody resumes them; that is kept, and everything is said."""
    with life(path) as daemon, daemon.opened():
        pass
    lost(path)

    with life(path) as daemon, daemon.opened() as store:
        for name in ("a", "b"):
            assert "the operators' orders" in orders_of(store, name).paused
            store.target(name, "sim://mlp", SPACE, configuration())
        resume(store, "b")
        assert any("all targets are paused" in row["sentence"] for row in store.rows("SELECT * FROM event"))
    with life(path) as again, again.opened() as store:
        assert orders_of(store, "a").paused
        assert orders_of(store, "b") == Orders()

    assert any("all targets are paused" in sentence for sentence in daemon.said)
    assert again.said == []


def test_orders_that_stand_are_taken_back_before_the_server_answers(path: Path) -> None:
    """The log says `tuner resume NAME`, and the server is away: the new store knows the name alone."""
    with life(path) as daemon, daemon.opened():
        pass
    path.unlink()

    with life(path) as daemon, daemon.opened() as store:
        resume(store, "a")
        unpin(store, "a")
        assert (orders_of(store, "a"), bool(orders_of(store, "b").paused)) == (Orders(), True)
        pause(store, "a", "release")
        with pytest.raises(InvalidInput, match="there is no target 'c'"):
            resume(store, "c")

        events = [row["sentence"] for row in store.rows("SELECT * FROM event WHERE target IS NULL")]
        assert events[-3:] == ["a: resumed", "a: no longer pinned", "a: paused: release"]
        store.target("a", "sim://mlp", SPACE, configuration())
        assert orders_of(store, "a") == Orders(paused="release")


@pytest.mark.parametrize("room", ["none", "for the tables alone"])
def test_orders_count_as_lost_where_there_was_no_room_for_a_new_store(
    path: Path, monkeypatch: pytest.MonkeyPatch, room: str
) -> None:
    """A start in vain must not make the next one believe that nothing was ever ordered."""
    with life(path) as daemon, daemon.opened():
        pass
    path.unlink()

    def refuse(*_: object, **__: object) -> NoReturn:
        raise Unavailable("state s.db: database or disk is full")

    with monkeypatch.context() as full:
        if room == "none":
            full.setattr(Store, "_create", refuse)
        else:
            full.setattr(daemon_store, "carry_over", refuse)
        with life(path) as in_vain, pytest.raises(Unavailable), in_vain.opened():
            pass

    with life(path) as next_one, next_one.opened() as store:
        assert "the operators' orders" in orders_of(store, "a").paused


def test_orders_count_as_lost_where_a_damaged_store_was_put_aside_in_vain(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no lock file says that there was one: it was deleted, or not copied with the store."""
    torn(path)

    def refuse(*_: object) -> NoReturn:
        raise Unavailable("state s.db: database or disk is full")

    with monkeypatch.context() as full:
        full.setattr(Store, "_create", refuse)
        with life(path) as in_vain, pytest.raises(Unavailable), in_vain.opened():
            pass

    with life(path) as next_one, next_one.opened() as store:
        assert "the operators' orders" in orders_of(store, "a").paused


class Killed(BaseException):
    """The process is killed."""


class KilledStore(Store):
    """A store whose process is killed when it has just been opened."""

    def __init__(self, path: Path, **how: Any) -> None:
        super().__init__(path, **how)
        self.close()
        raise Killed


@pytest.mark.parametrize(
    ("lost", "paused"),
    [(torn, "release"), (Path.unlink, "the store was deleted, and with it the operators' orders")],
    ids=["damaged", "deleted"],
)
def test_a_new_store_has_its_orders_from_its_first_moment(
    path: Path, monkeypatch: pytest.MonkeyPatch, lost: Callable[[Path], None], paused: str
) -> None:
    """Where the daemon is killed before it has come to anything else, the next one must not tune a target."""
    with life(path) as daemon, daemon.opened():
        pass
    lost(path)

    with monkeypatch.context() as patch:
        patch.setattr(daemon_store, "Store", KilledStore)
        with life(path) as killed, pytest.raises(Killed), killed.opened():
            pass

    with life(path) as next_one, next_one.opened() as store:
        assert orders_of(store, "a").paused == paused


def test_a_daemon_that_is_refused_leaves_word_of_the_store(path: Path) -> None:
    """The lock file was deleted, and the second daemon has made the one that the next start finds."""
    with locked_store(path), life(path) as second, pytest.raises(InvalidInput), second.opened():
        pass
    path.unlink()

    with life(path) as next_one, next_one.opened() as store:
        assert orders_of(store, "a").paused


def test_the_first_store_of_all_pauses_nothing(tmp_path: Path) -> None:
    """There were no orders."""
    with life(tmp_path / "s.db") as daemon, daemon.opened() as store:
        assert orders_of(store, "a") == Orders()

    assert daemon.said == []


def replaced(path: Path) -> None:
    """By a copy from before the orders."""
    path.unlink()
    with closing(Store(path)) as store:
        store.target("a", "sim://mlp", SPACE, configuration())
        pin(store, "a")


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        replaced,
        lambda path: path.with_name("s.db-wal").unlink(),
        lambda path: overwrite(path, 0),
        lambda path: overwrite(path, 100),
    ],
    ids=["deleted", "replaced", "without its log", "overwritten", "but for its header"],
)
def test_orders_outlive_the_store_while_the_daemon_runs(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """They are carried over from memory, whatever becomes of the file; so is a resumption."""
    path = tmp_path / "s.db"
    with life(path) as daemon:
        with daemon.opened() as store:
            give_orders(store)
            pause(store, "b", "")
            assert daemon.store.damage() == ""
            resume(store, "b")
            assert daemon.store.damage() == ""
            damage(path)
            problem = daemon.store.damage()
            assert problem != ""
        with daemon.opened() as store:
            assert orders_of(store, "a") == ORDERED
            assert orders_of(store, "b") == Orders()
            assert store.damage() == ""

    said = any("orders were carried over: a" in sentence for sentence in daemon.said)
    assert said != ("log has gone" in problem)  # then the store is the same


def test_orders_of_a_name_that_a_target_had_before_are_not_carried_over(tmp_path: Path) -> None:
    """They went along with it: a target that gets the old name must not begin paused and pinned."""
    path = tmp_path / "s.db"
    with life(path) as daemon:
        with daemon.opened() as store:
            give_orders(store)
            assert daemon.store.damage() == ""
            with store.writing() as db:
                db.execute("UPDATE orders SET name = 'c' WHERE name = 'a'")
            assert daemon.store.damage() == ""
            path.unlink()
            assert daemon.store.damage() != ""
        with daemon.opened() as store:
            assert orders_of(store, "a") == Orders()
            assert orders_of(store, "c") == ORDERED


def test_a_file_with_the_name_of_a_log_is_left_alone(tmp_path: Path) -> None:
    """SQLite would write over it."""
    log = tmp_path / "s.db-wal"
    log.write_text("precious")

    with life(tmp_path / "s.db") as daemon, pytest.raises(StorageError, match="is another"), daemon.opened():
        pass

    assert log.read_text() == "precious"


@pytest.mark.parametrize("make", [text, short_text, other_program_without_a_number])
@pytest.mark.parametrize("logged", [True, False])
def test_another_programs_file_in_its_place_is_left_there(
    path: Path, make: Callable[[Path], None], logged: bool
) -> None:
    """Though a store of ours was open there a moment ago, whose log SQLite would write into it."""
    with life(path) as daemon:
        with daemon.opened() as store:
            if logged:
                store.note("something")
            path.unlink()
            path.touch()
            make(path)
            before = path.read_bytes()
            assert "is another file now" in daemon.store.damage()
        with pytest.raises(StorageError, match="not a store of servetune"), daemon.opened():
            pass

    assert path.read_bytes() == before


def test_the_log_of_a_killed_daemon_is_not_written_into_another_file(path: Path) -> None:
    """Somebody put it where the store was."""
    with closing(Store(path)) as store:
        store.note("something")
        log = path.with_name("s.db-wal").read_bytes()
    path.unlink()
    path.write_text("precious")
    path.with_name("s.db-wal").write_bytes(log)

    with life(path) as daemon, pytest.raises(StorageError, match="not a store of servetune"), daemon.opened():
        pass

    assert path.read_text() == "precious"


def test_two_damaged_stores_of_one_second_have_two_names(path: Path) -> None:
    """None is overwritten."""
    content = path.read_bytes()
    for _ in range(3):
        path.write_bytes(content)
        torn(path)
        with life(path) as daemon, daemon.opened():
            pass

    assert len(list(path.parent.glob("s.db.damaged-20231114-221320*"))) == 3


def test_orders_carried_over_for_other_knobs_are_taken_back(path: Path) -> None:
    """A pin that the server cannot take would be ordered in vain for ever."""
    torn(path)
    with life(path) as daemon, daemon.opened() as store:
        with store.writing() as db:
            db.execute("UPDATE orders SET pinned = '{\"other\": 1.0}' WHERE name = 'a'")
        store.target("a", "sim://mlp", SPACE, configuration())

        assert orders_of(store, "a") == Orders(paused="release")
