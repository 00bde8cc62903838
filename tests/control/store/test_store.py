"""The daemon's memory: what is written is found again, and a killed process leaves nothing half done."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from tests.builders import OBJECTIVE, SPACE, configuration, measurement
from tests.control.store.lives_bed import outcomes
from tests.control.store.store_bed import APPLY, Times, entered, journal, record, state
from tuner.adapters import ApplyReport
from tuner.control.decide.decision import Apply, Hold, Rollback
from tuner.control.drive.state import RunState
from tuner.control.store.database import Database
from tuner.control.store.history import explain
from tuner.control.store.known import current_target
from tuner.control.store.policies import keep_policy, load_policy, policy_number
from tuner.control.store.store import Store
from tuner.control.store.unfinished import unfinished_change, unjudged_change
from tuner.errors import StorageError
from tuner.knobs import ApplyCost, Configuration, Knob, KnobSpace


def test_a_target_is_found_again(tmp_path: Path, store: Store) -> None:
    """With what it ran at first, what it runs now, and the last good configuration."""
    target = entered(store)
    store.decided(
        target, record(Hold(reason="fine")), state(configuration(2), configuration(8), 7), kept=True
    )
    store.close()

    with closing(Store(tmp_path / "s.db")) as again:
        found = again.target("a", "sim://mlp", SPACE, configuration(16))

    assert found.id == target
    assert found.state.original == dict(configuration())
    assert found.state.current == dict(configuration(2))
    assert found.state.last_good == dict(configuration(8))
    assert found.state.window == 7


def test_a_knob_that_is_added_later_has_what_runs_then(store: Store) -> None:
    """In all that is known of the target, and from then on: what a later life finds is perhaps ours."""
    fewer, later = KnobSpace(SPACE.knobs[:2]), configuration(8, 0.002, 2)
    first = {"max_batch_size": 1.0, "max_queue_delay": 0.0}
    target = store.target("a", "sim://mlp", fewer, Configuration(first)).id
    ours = {"max_batch_size": 8.0, "max_queue_delay": 0.002}
    state = RunState(target="sim://mlp", original=first, current=ours, last_good=ours)
    store.decided(target, record(Hold(reason="fine")), state, kept=True)

    store.target("a", "sim://mlp", SPACE, later)
    found = store.target("a", "sim://mlp", SPACE, configuration(4, 0.0, 1)).state

    assert found.original == dict(configuration(1, 0.0, 2))
    assert found.current == found.last_good == dict(later)


def test_another_server_of_the_same_name_is_another_target(store: Store) -> None:
    """What was learned of the one does not hold for the other."""
    assert store.target("a", "sim://other", SPACE, configuration()).id != entered(store)


def test_windows_and_decisions_are_kept(store: Store, times: Times) -> None:
    """What is not known is NULL, not a number."""
    target = entered(store)
    m = replace(measurement(0.04, failures=2), gpu=math.nan)
    decision = store.decided(target, record(APPLY, 3, m, "recommended"), state(window=3), kept=False)

    window = store.rows("SELECT * FROM window")[0]
    row = store.row("SELECT * FROM decision")
    assert row is not None

    assert (window["number"], window["failures"], window["kept"], window["level"]) == (3, 2, 0, 5)
    assert window["p95"] == 0.04
    assert window["gpu"] is None
    assert window["time"] == times.now
    assert (row["id"], row["action"], row["outcome"], row["reason"]) == (
        decision,
        "apply",
        "recommended",
        "because",
    )
    assert (row["exploring"], row["expected"], row["observed"]) == (1, 0.5, None)


def test_the_file_is_for_its_owner_only(tmp_path: Path, store: Store) -> None:
    """And so are the files that SQLite puts beside it."""
    entered(store)

    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_credentials_are_not_kept(tmp_path: Path, store: Store) -> None:
    """A target's URL may hold them."""
    store.target("b", "triton://user:secret@host:8001/m", SPACE, configuration())
    store.close()

    assert b"secret" not in (tmp_path / "s.db").read_bytes()


def test_a_change_is_in_doubt_until_the_server_has_answered(store: Store) -> None:
    """From just before it is asked on."""
    log = journal(store)
    target = entered(store)
    log.decided(record(APPLY, outcome="decided"), state())
    log.changing()
    unfinished = unfinished_change(store, target)
    assert (unfinished.previous, unfinished.wanted) == (configuration(), configuration(4))

    report = ApplyReport(
        configuration=configuration(4), changed=True, cost=ApplyCost.RELOAD, seconds=0.6, settle=1
    )
    log.changed(record(APPLY, outcome="applied", report=report), state(configuration(4)))
    row = store.row("SELECT * FROM decision")
    assert row is not None

    assert unfinished_change(store, target) is None
    assert (row["outcome"], row["seconds"], row["error"]) == ("applied", 0.6, "")
    assert store.target("a", "sim://mlp", SPACE, configuration()).state.current == dict(configuration(4))


def test_the_first_usable_window_shows_what_a_change_was_good_for(store: Store) -> None:
    """Not a disturbed one, not one of another configuration, and only the first."""
    log = journal(store)
    log.decided(record(APPLY, outcome="decided"), state())
    log.changing()
    log.changed(record(APPLY, outcome="applied"), state(configuration(4)))
    runs = configuration(4)
    for m in (
        measurement(0.012, running=runs, disturbed=("noise",)),
        measurement(0.015, running=configuration(2)),
        measurement(0.018, running=runs),
        measurement(0.021, running=runs),
    ):
        log.decided(record(Hold(reason="x"), 2, m), state(runs))

    assert store.row("SELECT observed FROM decision")["observed"] == pytest.approx(0.6)  # type: ignore[index]


def test_a_knob_without_effect_does_not_hide_what_a_change_was_good_for(store: Store) -> None:
    """The server reports 0 for the delay, which is on no grid, once nothing is batched."""
    batch = Knob(name="max_batch_size", grid=(1, 4), default=1)
    delay = Knob(
        name="delay", grid=(0.001, 0.002), default=0.001, unit="s", idle_when=("max_batch_size", 1.0)
    )
    space = KnobSpace([batch, delay])
    wanted, before = space.default, space.default.replace(max_batch_size=4)
    runs = space.effective(wanted)
    target = store.target("a", "sim://mlp", space, before).id
    log = journal(store, target)
    change = Apply(configuration=wanted, reason="because")
    log.decided(record(change, outcome="decided"), state(before))
    log.changing()
    log.changed(record(change, outcome="applied"), state(runs))
    for p95 in (0.018, 0.021):
        log.decided(record(Hold(reason="x"), 2, measurement(p95, running=runs)), state(runs))

    assert runs["delay"] == 0
    assert unjudged_change(store, target) is None
    decision, lines = explain(store, 1)
    assert decision.observed == pytest.approx(0.6)
    assert dict(lines)["observed"] == "cost 0.60 in the first window, 0.65 over 2, of which 100% kept the SLO"


def test_what_could_not_be_written_after_a_change_is_written_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was changed; a disk that is full for several windows must not hide it for longer."""
    log = journal(store)
    log.decided(record(APPLY, outcome="decided"), state())
    log.changing()
    with full_disk(monkeypatch):
        log.changed(record(APPLY, outcome="applied"), state(configuration(4)))
        for number in (2, 3):
            with pytest.raises(StorageError, match="full"):
                log.decided(record(Hold(reason="x"), number), state(configuration(4)))
    assert outcomes(store) == ["applying"]

    log.decided(record(Hold(reason="x"), 4), state(configuration(4)))

    assert outcomes(store) == ["applied", "held"]


@pytest.mark.parametrize("last", ["an event", "the end"])
def test_what_is_owed_comes_with_whatever_is_written_next(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """The daemon may be stopped before the next window."""
    log = journal(store)
    log.decided(record(APPLY, outcome="decided"), state())
    log.changing()
    with full_disk(monkeypatch):
        log.changed(record(APPLY, outcome="applied"), state(configuration(4)))
    if last == "an event":
        store.note("there is room again")
    else:
        store.close()

    with closing(Store(tmp_path / "s.db", reading=True)) as again:
        assert outcomes(again) == ["applied"]
        assert again.configuration(current_target(again, "a")["running"]) == configuration(4)  # type: ignore[index]


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every transaction of a store fails."""

    @contextmanager
    def refuse(self: Database) -> Iterator[NoReturn]:
        raise StorageError("database or disk is full")
        yield

    with monkeypatch.context() as full:
        full.setattr(Database, "writing", refuse)
        yield


def test_a_transaction_is_whole_or_nothing(store: Store) -> None:
    """The window is not kept if the decision cannot be."""
    target = entered(store)
    with pytest.raises(StorageError, match=r"s\.db"):
        store.decided(target, record(replace(APPLY, reason=None)), state(), kept=True)  # type: ignore[arg-type]

    assert store.rows("SELECT * FROM window") == []
    store.decided(target, record(Hold(reason="x")), state(), kept=True)
    assert len(store.rows("SELECT * FROM window")) == 1


def test_policies_come_back(store: Store, tmp_path: Path) -> None:
    """The newest one; older ones are forgotten by and by."""
    target = entered(store)
    saved = tmp_path / "policy"
    saved.mkdir()
    for number in (10, 20, 30, 40, 50):
        (saved / "policy.json").write_text(f"{number}")
        (saved / "arrays.npz").write_bytes(np.arange(number).tobytes())
        keep_policy(store, target, number, saved)
    back = tmp_path / "back"
    back.mkdir()

    load_policy(store, target, back)

    assert policy_number(store, target) == 50
    assert (back / "policy.json").read_text() == "50"
    assert (back / "arrays.npz").read_bytes() == np.arange(50).tobytes()
    assert len(store.rows("SELECT * FROM policy")) == 3
    assert len(store.rows("SELECT * FROM policy_file")) == 6
    assert policy_number(store, entered(store, "b")) is None


def test_policies_of_the_last_objectives_stay(store: Store, tmp_path: Path) -> None:
    """However long the target is tuned toward another one: it may come back. Not those of all that it had."""
    target = entered(store)
    (saved := tmp_path / "policy").mkdir()
    (saved / "policy.json").write_text("{}")
    for number, objective in enumerate(["first", "second", "second", "third", None, *["last"] * 5]):
        keep_policy(store, target, number, saved, objective)

    kept = [(row["objective"], row["number"]) for row in store.rows("SELECT * FROM policy ORDER BY id")]
    assert kept == [("second", 2), ("third", 3), (None, 4), ("last", 7), ("last", 8), ("last", 9)]


def test_what_was_learned_for_another_objective_is_left_alone(store: Store, tmp_path: Path) -> None:
    """Neither a last good configuration nor a policy; when the objective is back, so is its policy."""
    strict = replace(OBJECTIVE, slo=replace(OBJECTIVE.slo, latency=0.010))
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "policy.json").write_text("{}")

    def attached(key: str) -> tuple[dict[str, float] | None, int | None]:
        standing = store.target("a", "sim://mlp", SPACE, configuration(), objective=key)
        return standing.state.last_good, policy_number(store, standing.id, key)

    target = entered(store)
    good = state(configuration(2), configuration(8))
    keep_policy(store, target, 1, tmp_path / "policy")  # by an older version, which did not say for what
    store.decided(target, record(Hold(reason="fine")), good, kept=True)

    assert attached(OBJECTIVE.key) == (dict(configuration(8)), 1)
    assert attached(replace(OBJECTIVE, cores=8.0).key) == (dict(configuration(8)), 1)
    assert attached(strict.key) == (None, None)
    assert attached(OBJECTIVE.key) == (None, 1)
    said = [row["sentence"] for row in store.rows("SELECT sentence FROM event")]
    assert ["has another objective now" in sentence for sentence in said] == [True, True]


@pytest.mark.parametrize("content", [b"not a database, but long enough to be one" * 100, b"\0" * 5000])
def test_a_damaged_file_is_told(tmp_path: Path, content: bytes) -> None:
    """One clear error that names it."""
    path = tmp_path / "s.db"
    path.write_bytes(content)

    with pytest.raises(StorageError, match=r"state .*s\.db"):
        Store(path)


def fill(path: Path) -> None:
    """Make a store of several pages, with 200 decisions."""
    with closing(Store(path)) as store:
        target = entered(store)
        for number in range(200):
            store.decided(target, record(Hold(reason="x" * 200), number), state(), kept=True)


def tear(path: Path) -> None:
    """Replace its pages 4 to 12 by garbage."""
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 12] = os.urandom(4096 * 9)
    path.write_bytes(content)


def test_a_torn_page_is_told(tmp_path: Path) -> None:
    """A file that begins well and ends in garbage."""
    path = tmp_path / "s.db"
    fill(path)
    tear(path)

    with pytest.raises(StorageError, match=r"state .*s\.db"):
        Store(path)


def test_other_databases_are_left_alone(tmp_path: Path) -> None:
    """Somebody else's file, or one of a later version; also by who only gives an order."""
    path = tmp_path / "s.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    empty = tmp_path / "empty"
    empty.touch()

    for one, existing in ((path, False), (path, True), (empty, True)):
        before = one.read_bytes()
        with pytest.raises(StorageError, match="is another program's file, not a store of servetune"):
            Store(one, existing=existing)
        assert one.read_bytes() == before


def test_reading_needs_a_file_and_changes_nothing(tmp_path: Path, store: Store) -> None:
    """A missing file is an error, and is not created."""
    entered(store)
    with pytest.raises(StorageError, match="no such file"):
        Store(tmp_path / "none.db", reading=True)
    reader = Store(tmp_path / "s.db", reading=True)

    assert len(reader.rows("SELECT * FROM target")) == 1
    with pytest.raises(StorageError, match="readonly"):
        reader.note("x")
    reader.close()


WRITER = """
import sys
from pathlib import Path
from tests.control.store.store_bed import *
from tests.builders import configuration
from tuner.control.decide.decision import Apply
from tuner.control.store.store import Store
store = Store(Path(sys.argv[1]))
log, target = journal(store), entered(store)
print("ready", flush=True)
running = configuration()
for number in range(1, 1_000_000):
    wanted = configuration(4 if number % 2 else 8)
    decision = Apply(configuration=wanted, reason=f"turn {number}")
    log.decided(record(decision, number, outcome="decided"), state(running, window=number))
    log.changing()
    running = wanted
    log.changed(record(decision, number, outcome="applied"), state(running, window=number))
    print(number, flush=True)
"""


@pytest.mark.parametrize("turns", [0, 1, 4, 13, 40])
def test_a_killed_process_leaves_whole_turns(tmp_path: Path, turns: int) -> None:
    """kill -9 at any instant: every decision has its window, and at most the last change is in doubt."""
    path = tmp_path / "s.db"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        for number in range(1, turns + 1):
            assert process.stdout.readline() == f"{number}\n"
        process.send_signal(signal.SIGKILL)

    store = Store(path)
    decisions = store.rows(
        "SELECT decision.*, window.number FROM decision LEFT JOIN window ON window.id = window"
    )
    standing = store.target("a", "sim://mlp", SPACE, configuration()).state

    assert len(decisions) >= turns
    assert [row["number"] for row in decisions] == list(range(1, len(decisions) + 1))
    assert standing.window == len(decisions)
    assert {row["outcome"] for row in decisions[:-1]} <= {"applied"}
    if decisions and decisions[-1]["outcome"] == "applied":
        assert standing.current == dict(configuration(4 if len(decisions) % 2 else 8))
    store.close()


def test_rollbacks_are_called_so(store: Store) -> None:
    """In words."""
    target = entered(store)
    back = Rollback(configuration=configuration(2), reason="it broke the SLO")
    store.decided(target, record(back, outcome="applied"), state(), kept=False)

    assert store.row("SELECT action FROM decision")["action"] == "roll back"  # type: ignore[index]


def test_damage_is_noticed_while_it_is_open(store: Store) -> None:
    """Gone, another file, nonsense: the connection's own pages would show nothing of it."""
    target = entered(store)
    store.decided(target, record(Hold(reason="x")), state(), kept=True)
    assert store.damage() == ""

    aside = store.path.with_name("aside")
    store.path.rename(aside)
    assert "has gone" in store.damage()
    store.path.write_bytes(b"another")
    assert "is another file now" in store.damage()
    aside.replace(store.path)
    assert store.damage() == ""

    for path in (store.path, store.path.with_name("s.db-wal")):
        path.write_bytes(os.urandom(path.stat().st_size))  # the log alone would do, and mend the file
    assert "is not a database" in store.damage()


def test_what_cannot_be_read_is_remembered_as_damage(tmp_path: Path) -> None:
    """An operation of our own that meets a bad page says so."""
    path = tmp_path / "s.db"
    fill(path)
    opened = Store(path, reading=True)  # a writer has read all of it, and remembers
    tear(path)

    with pytest.raises(StorageError, match="malformed"):
        opened.rows("SELECT * FROM decision")
    assert "malformed" in opened.damage()
    opened.close()
