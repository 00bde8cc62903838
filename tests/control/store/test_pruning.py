"""What is old is deleted from the store, and what a later start needs is not."""

from __future__ import annotations

import pytest

from tests.builders import configuration
from tests.control.store.store_bed import APPLY, Times, entered, journal, plan_of_deletion, record, state
from tuner.control.decide.decision import Hold
from tuner.control.store import store as store_module
from tuner.control.store.store import Store
from tuner.control.store.unfinished import unfinished_change, unjudged_change


def test_old_entries_are_forgotten(store: Store, times: Times) -> None:
    """Windows, decisions and events; targets and policies stay."""
    target = entered(store)
    for hour in range(10):
        times.now = 3600.0 * hour
        store.decided(target, record(Hold(reason="x"), hour), state(), kept=True)
        store.note("something", target)

    assert store.prune(3600.0 * 7) == 3 * 7
    assert [row["number"] for row in store.rows("SELECT number FROM window")] == [7, 8, 9]
    assert len(store.rows("SELECT * FROM decision")) == len(store.rows("SELECT * FROM event")) == 3


def test_old_entries_are_forgotten_in_slices(
    store: Store, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that targets can write in between; a window goes after the decision that followed it."""
    monkeypatch.setattr(store_module, "SLICE", 2)
    target = entered(store)
    for hour in range(5):
        times.now = 3600.0 * hour
        store.decided(target, record(Hold(reason="x"), hour), state(), kept=True)
        store.note("something", target)

    assert [store.prune(3600.0 * 3) for _ in range(3)] == [6, 3, 0]
    rows = store.rows("SELECT decision.window, window.id FROM decision JOIN window ON window.id = window")
    assert [tuple(row) for row in rows] == [(4, 4), (5, 5)]


def test_the_decision_after_a_deleted_window_is_found_by_an_index(store: Store) -> None:
    """To look through all decisions for each of them would stop all targets of a large store for hours."""
    assert "USING INDEX decision_window" in plan_of_deletion(store)


def test_the_number_of_a_decision_is_never_given_again(store: Store, times: Times) -> None:
    """Not even after everything has become old: who asks for a number must not get another decision."""
    target = entered(store)
    for number in range(3):
        store.decided(target, record(Hold(reason="x"), number), state(), kept=True)
    last = store.rows("SELECT max(id) AS id FROM decision")[0]["id"]
    times.now += 31 * 86400

    store.prune(times.now - 30 * 86400)
    store.decided(target, record(Hold(reason="y"), 3), state(), kept=True)

    assert [row["id"] for row in store.rows("SELECT id FROM decision ORDER BY id")] == [last, last + 1]


@pytest.mark.parametrize("outcome", ["decided", "applying", "applied"])
def test_what_is_not_finished_is_not_forgotten(store: Store, times: Times, outcome: str) -> None:
    """A clock set forward by a month makes nothing old that the next start has to resolve or to judge."""
    target, log = entered(store), journal(store)
    for number in (1, 2):
        log.decided(record(APPLY, number, outcome="decided"), state())
        if number == 1 or outcome != "decided":
            log.changing()
        if number == 1 or outcome == "applied":
            log.changed(record(APPLY, number, outcome="applied"), state(configuration(4)))
    times.now += 31 * 86400

    store.prune(times.now - 30 * 86400)

    left = store.rows("SELECT outcome, window FROM decision ORDER BY id")
    assert [row["outcome"] for row in left] == (["applied", outcome] if outcome != "applied" else ["applied"])
    assert all(row["window"] is not None for row in left)
    assert (
        unjudged_change(store, target) if outcome == "applied" else unfinished_change(store, target)
    ) is not None
