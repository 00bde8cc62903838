"""``tuner history`` and ``tuner explain``: what they show of a daemon's store."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import OBJECTIVE, SPACE, configuration, measurement
from tests.command_line import Run
from tuner.adapters import ApplyReport
from tuner.control.decide.decision import Apply, Hold, Rollback
from tuner.control.drive.journal import WindowRecord
from tuner.control.drive.state import RunState
from tuner.control.store.history import StoredDecision
from tuner.control.store.journal import StoreJournal
from tuner.control.store.known import current_target
from tuner.control.store.store import Store
from tuner.knobs import ApplyCost, Configuration


def fill(store: Store) -> None:
    """A hold, a change that goes well for two windows, and a rollback that the server refuses."""
    target = store.target("mlp", "sim://mlp", SPACE, configuration()).id
    log = StoreJournal(store, target, OBJECTIVE)
    running, good = configuration(), configuration(4, 0.002)
    apply = Apply(configuration=good, reason="p95 40ms breaks 30ms; least learned cost", expected=0.5)
    back = Rollback(configuration=configuration(2), reason="the change broke the SLO")
    plan: list[tuple[float, Hold | Apply | Rollback, str]] = [
        (0.040, Hold(reason="p95 40ms breaks 30ms; nothing better is expected"), "held"),
        (0.040, apply, "applied"),
        (0.018, Hold(reason="within"), "held"),
        (0.024, back, "failed"),
    ]
    for number, (p95, decision, outcome) in enumerate(plan, 1):
        m = measurement(p95, running=running)
        state = RunState(
            target="x", original=dict(configuration()), current=dict(running), last_good=None, window=number
        )
        record = WindowRecord(
            number=number, measurement=m, decision=decision, cost=OBJECTIVE.cost(m), level=24, outcome="held"
        )
        log.decided(record, state)
        if isinstance(decision, Hold):
            continue
        log.changing()
        report = ApplyReport(
            configuration=good, changed=True, cost=ApplyCost.RELOAD, seconds=0.58, settle=1.0
        )
        error = "out of memory" if outcome == "failed" else ""
        running = good
        done = replace(record, outcome=outcome, report=None if error else report, error=error)
        log.changed(done, state.model_copy(update={"current": dict(running)}))
    store.note("somebody else set max_batch_size=2; going on from there", target)


@pytest.fixture
def run(run: Run) -> Run:
    """Run `tuner` in a folder with a store."""
    store = Store(Path("servetune.db"))
    fill(store)
    store.close()
    return run


def test_the_history_shows_changes_and_events(run: Run) -> None:
    """Newest last; decisions to hold only if asked for."""
    code, out, err = run("history")
    _, everything, _ = run("history", "--all")

    assert (code, err) == (0, "")
    assert "max_batch_size 1 → 4" in out
    assert "max_queue_delay 0ms → 2ms" in out
    assert "applied" in out
    assert "0.50" in out
    assert "0.60" in out
    assert "mlp: somebody else set max_batch_size=2" in out
    assert "hold" not in out
    assert everything.count("hold") == 2


def test_no_text_in_the_store_commands_the_terminal(run: Run) -> None:
    """Whoever gave an order, and whatever an older daemon wrote down of a server's words."""
    escape, words = "\x1b]0;owned\x07", "[red]\x1b[31m\x9b1mred\nforged"
    code, _, _ = run("pause", "mlp", "--why", f"release {escape}of Friday")
    assert code == 0
    store = Store(Path("servetune.db"))
    assert "\x1b" not in store.row("SELECT paused FROM orders")["paused"]  # type: ignore[index]
    store.note(f"it said: {words}")
    with store.writing() as db:
        db.execute("UPDATE decision SET reason = ?, error = ?", (words, words))
    store.close()

    told = "".join(run(*command)[1] for command in (["history"], ["explain", "2"], ["explain", "4"]))

    assert "it said: [red][31m1mred forged\n" in told
    assert "release ]0;ownedof Friday" in told
    assert {"\x1b", "\x9b", "\x07"} & set(told) == set()


@pytest.mark.parametrize("number", ["0", "99", "99999999999999999999999"])
def test_a_decision_that_there_is_not(run: Run, number: str) -> None:
    """However large its number is."""
    code, _, err = run("explain", number)

    assert (code, err) == (2, f"error: DECISION: there is no decision {number}; there are 1 to 4\n")


def test_a_knob_to_pin_that_there_is_not(run: Run) -> None:
    """It is named by the option that was written, with the knobs that there are."""
    code, _, err = run("pin", "mlp", "--set", "foo=8")

    assert code == 2
    assert err.startswith("error: --set foo: unknown; the knobs are max_batch_size, ")


def test_a_knob_to_pin_that_is_given_twice(run: Run) -> None:
    """It is not known which of the values is meant, so that nothing is pinned."""
    code, _, err = run("pin", "mlp", "--set", "max_batch_size=1", "--set", "max_batch_size=2")

    assert (code, err) == (2, "error: --set max_batch_size: given twice; a knob is pinned to one value\n")


def test_the_history_as_json(run: Run) -> None:
    """With everything that is known of each decision."""
    _, out, _ = run("history", "--json", "--count", "2")

    told = json.loads(out)
    assert [entry["decision"] for entry in told["decisions"]] == [2, 4]
    assert told["decisions"][0]["observed"] == pytest.approx(0.6)
    assert told["decisions"][1]["error"] == "out of memory"
    assert told["events"][0]["target"] == "mlp"


def test_a_decision_is_explained(run: Run) -> None:
    """What was seen, why, what was expected and what came of it."""
    code, out, err = run("explain", "2")

    assert (code, err) == (0, "")
    assert "decision 2 · mlp" in out
    assert "window 2, 200 requests/s" in out
    assert "cost 1.33, SLO broken" in out
    assert "apply: max_batch_size 1 → 4, max_queue_delay 0ms → 2ms" in out
    assert "least learned cost" in out
    assert "cost 0.50" in out
    assert "applied in 580ms" in out
    assert "cost 0.60 in the first window, 0.70 over 2, of which 100% kept the SLO" in out


def test_what_failed_and_what_changed_nothing_is_explained_too(run: Run) -> None:
    """With the server's own words; as JSON, too."""
    _, failed, _ = run("explain", "4")
    _, hold, _ = run("explain", "1", "--json")

    assert "failed: out of memory" in failed
    assert json.loads(hold)["explanation"]["decided"] == "hold"


def test_what_somebody_else_set_is_not_what_a_change_came_to(run: Run) -> None:
    """Neither in the first window after it nor on average."""
    store = Store(Path("servetune.db"))
    target, theirs = current_target(store, "mlp")["id"], configuration(16)  # type: ignore[index]
    with store.writing() as db:
        db.execute("DELETE FROM window WHERE number > 2")
        db.execute("UPDATE decision SET observed = NULL")
        db.execute("DELETE FROM decision WHERE id > 2")
    show(store, target, theirs, 3, 2)
    never = run("explain", "2")[1]
    show(store, target, configuration(4, 0.002), 5, 2)
    show(store, target, theirs, 7, 2)
    store.close()

    assert "in no window that judged it" in never
    assert "cost 0.60 in the first window, 0.60 over 2, of which 100%" in run("explain", "2")[1]


def test_one_broken_window_of_many_is_not_rounded_away(run: Run) -> None:
    """All of them is said where it is true."""
    store = Store(Path("servetune.db"))
    target = current_target(store, "mlp")["id"]  # type: ignore[index]
    show(store, target, configuration(4, 0.002), 5, 300)
    with store.writing() as db:
        db.execute("UPDATE window SET kept = 0 WHERE number = 100")
    store.close()

    assert "over 302, of which 99% kept the SLO" in run("explain", "2")[1]


def show(store: Store, target: int, running: Configuration, number: int, count: int) -> None:
    """Some windows of what a target runs, worse for the largest batches."""
    log = StoreJournal(store, target, OBJECTIVE)
    m = measurement(0.024 if running == configuration(16) else 0.018, running=running)
    state = RunState(target="x", original=dict(running), current=dict(running), window=number)
    for one in range(number, number + count):
        held = WindowRecord(number=one, measurement=m, decision=Hold(reason="x"), cost=OBJECTIVE.cost(m))
        log.decided(held, state)


def test_nothing_is_said_that_is_not_known(run: Run) -> None:
    """Of a change at the end of a run, before which no window was measured and nobody was asked."""
    store = Store(Path("servetune.db"))
    last = Apply(
        configuration=configuration(2),
        reason="nothing more is tried; it is left with its best",
        restores=True,
    )
    record = WindowRecord(number=4, measurement=None, decision=last, outcome="recommended")
    running = dict(configuration())
    state = RunState(target="x", original=running, current=running)
    store.decided(current_target(store, "mlp")["id"], record, state, kept=False)  # type: ignore[index]
    store.close()

    _, out, _ = run("explain", "5")

    assert "no window was measured" in out
    assert "would apply: " in out  # it was recommended only
    assert "away" not in out
    assert "expected" not in out


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["explain", "99"], "there is no decision 99; there are 1 to 4"),
        (["history", "--target", "x"], "no target 'x' was ever attached; there are mlp"),
        (["history", "--state", "none.db"], "there is no such file"),
    ],
)
def test_mistakes_are_told(run: Run, arguments: list[str], names: str) -> None:
    """Exit code 2 and one line."""
    code, out, err = run(*arguments)

    assert (code, out) == (2, "")
    assert names in err


def test_a_change_that_gives_replicas_what_the_others_run_is_no_change_of_knobs() -> None:
    """Something was done all the same, at the replicas that ran something else."""
    knobs = {"max_batch_size": 4.0}
    decision = StoredDecision.model_construct(configuration=knobs, previous=knobs, units={})

    assert decision.change() == "the same configuration again"
