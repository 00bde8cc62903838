"""A trial by one of several replicas that a stop or a kill ends, and what the next life makes of it."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, measurement
from tests.control.drive.canary_bed import NEW, OLD, THEIRS, Fleet, driver_of
from tests.control.drive.driver_bed import Clients
from tuner.control import (
    Apply,
    ControlLoop,
    Decision,
    Driver,
    Hold,
    Oversight,
    Rollback,
    RunState,
    Watched,
    WindowRecord,
)
from tuner.control.daemon.stoppable_clock import Stopped
from tuner.control.decide.rules import CHANGE
from tuner.control.store.journal import StoreJournal
from tuner.control.store.next_life import take_up_changes
from tuner.control.store.store import Store
from tuner.control.store.unfinished import unfinished_change
from tuner.errors import InvalidInput
from tuner.knobs import Configuration, KnobSpace
from tuner.profiler.load.in_flight import GroupWithInFlight

TRIAL = Apply(configuration=NEW, reason="x", rule=CHANGE.name)
OFF_GRID = OLD.replace(max_queue_delay=1e-7)
"""What a user had set, on no grid; some adapters do not take it."""


def test_a_stop_in_a_trial_is_the_end_of_the_change(fleet: Fleet, store: Store) -> None:
    """SIGTERM while the canary runs: its own is put back, which is written down, and nothing is owed."""
    target = store.target("a", "fake://all", SPACE, OLD).id
    fleet.driver = driver_of(fleet, journal=StoreJournal(store, target, OBJECTIVE))

    def stop() -> None:
        if NEW in fleet.running:
            raise Stopped("stopped")

    fleet.during = stop
    with pytest.raises(Stopped):
        fleet.driver.step()

    row = store.row("SELECT * FROM decision")
    assert row is not None
    assert (row["outcome"], row["error"]) == (
        "interrupted",
        "stopped in the middle of it; the server runs what it ran before",
    )
    assert fleet.running == [OLD, OLD, OLD]
    fleet.servers["b"].running = THEIRS
    assert take_up_changes(store, target, fleet.driver) is None
    assert fleet.running == [OLD, THEIRS, OLD]


def test_a_stop_after_which_a_replica_is_away_leaves_the_change_open(fleet: Fleet, store: Store) -> None:
    """What nobody knows is not written down as known: the next life asks."""
    target = store.target("a", "fake://all", SPACE, OLD).id
    fleet.driver = driver_of(fleet, journal=StoreJournal(store, target, OBJECTIVE))

    def fail(wanted: Configuration) -> NoReturn:
        fleet.servers["a"].running = wanted
        raise RuntimeError("a bug")

    fleet.servers["a"].apply = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        fleet.driver.step()

    assert unfinished_change(store, target) is not None


@pytest.mark.parametrize(
    ("running", "after", "outcome"),
    [
        ([NEW, OLD, OLD], [OLD, OLD, OLD], "interrupted"),
        ([NEW, NEW, OLD], [OLD, OLD, OLD], "interrupted"),
        ([OLD, OLD, OLD], [OLD, OLD, OLD], "interrupted"),
        ([NEW, NEW, NEW], [NEW, NEW, NEW], "applied"),
        ([NEW, OLD, THEIRS], [NEW, OLD, THEIRS], "interrupted"),
        ([THEIRS, THEIRS, THEIRS], [THEIRS, THEIRS, THEIRS], "interrupted"),
    ],
)
def test_killed_while_one_tries(
    fleet: Fleet,
    store: Store,
    running: list[Configuration],
    after: list[Configuration],
    outcome: str,
) -> None:
    """The next life puts all back to what ran before, unless the change or somebody else was through."""
    target = killed_in_a_change(store)
    for server, found in zip(fleet.servers.values(), running, strict=True):
        server.running = found

    sentence = take_up_changes(store, target, fleet.driver)

    assert sentence is not None
    assert ("did not come about" in sentence) == (outcome == "interrupted")
    assert fleet.running == after
    assert unfinished_change(store, target) is None
    assert store.row("SELECT outcome FROM decision")["outcome"] == outcome  # type: ignore[index]


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize(
    "repair", [Rollback(configuration=NEW, reason="x"), Apply(configuration=NEW, reason="x", restores=True)]
)
def test_killed_in_a_repair_that_some_have(
    fleet: Fleet, store: Store, repair: Rollback | Apply, refuses: bool
) -> None:
    """The others follow: what they ran before was bad, or is what a restart has left."""
    target = killed_in_a_change(store, repair)
    fleet.servers["a"].running, fleet.servers["c"].refuses = NEW, refuses

    take_up_changes(store, target, fleet.driver)

    decided = store.row("SELECT outcome, error FROM decision")
    assert decided is not None
    if refuses:
        assert (fleet.running, decided["outcome"]) == ([NEW, OLD, OLD], "interrupted")
        assert "the others could not follow" in decided["error"]
    else:
        assert (fleet.running, decided["outcome"]) == ([NEW, NEW, NEW], "applied")
        assert decided["error"].endswith("; the others followed")


@pytest.mark.parametrize("refuses", [False, True])
def test_killed_in_a_rollback_of_servers_and_clients_that_some_have(
    fleet: Fleet, store: Store, refuses: bool
) -> None:
    """Our clients begin anew with what they had before it, and follow with the other servers."""
    load: Any = Clients()
    both = GroupWithInFlight(fleet.group, load, (4.0, 16.0))
    before, wanted = OLD.replace(max_in_flight=16.0), NEW.replace(max_in_flight=4.0)
    target = killed_in_a_change(store, Rollback(configuration=wanted, reason="x"), both.space, before)
    fleet.servers["a"].running, fleet.servers["c"].refuses = NEW, refuses
    loop = ControlLoop(both.space, OBJECTIVE, ScriptedAgent())
    driver = Driver(Watched(both, fleet, fleet.clock), loop, window=5.0, oversight=Oversight())

    sentence = take_up_changes(store, target, driver)

    decided = store.row("SELECT outcome, error FROM decision")
    assert decided is not None
    assert sentence is not None
    assert ("did not come about" in sentence) == refuses
    assert decided["outcome"] == ("interrupted" if refuses else "applied")
    assert load.in_flight == (16 if refuses else 4)
    assert fleet.running == ([NEW, OLD, OLD] if refuses else [NEW, NEW, NEW])


def test_killed_while_one_tries_that_is_away_afterwards(fleet: Fleet, store: Store) -> None:
    """It gets what the others run when it is back."""
    target = killed_in_a_change(store)
    fleet.servers["a"].running, fleet.servers["a"].up = NEW, False
    take_up_changes(store, target, fleet.driver)
    fleet.servers["a"].up = True

    fleet.driver.step()

    assert fleet.running == [OLD, OLD, OLD]


def test_what_was_decided_before_the_last_decision_is_over(fleet: Fleet, store: Store) -> None:
    """A change whose end was not written, after which the daemon went on, puts nothing back."""
    target = killed_in_a_change(store)
    held = WindowRecord(number=2, measurement=measurement(), decision=Hold(reason="fine"))
    store.decided(
        target, held, RunState(target="fake://all", original=dict(OLD), current=dict(OLD)), kept=True
    )
    fleet.servers["a"].running = NEW  # by somebody

    assert take_up_changes(store, target, fleet.driver) is None
    assert fleet.running == [NEW, OLD, OLD]
    outcomes = [row["outcome"] for row in store.rows("SELECT outcome FROM decision ORDER BY id")]
    assert outcomes == ["interrupted", "held"]


def test_a_server_that_refuses_to_go_back_is_not_asked_for_ever(fleet: Fleet, store: Store) -> None:
    """The change ends with the refusal."""
    target = killed_in_a_change(store)
    fleet.servers["a"].running, fleet.servers["a"].refuses = NEW, True

    take_up_changes(store, target, fleet.driver)

    assert unfinished_change(store, target) is None
    assert "could not be put back" in store.row("SELECT error FROM decision")["error"]  # type: ignore[index]


def test_what_ran_before_a_trial_and_cannot_be_set_is_no_mistake_of_the_file(
    fleet: Fleet, store: Store
) -> None:
    """Else the daemon would never keep the target again: all get the nearest that can be set."""
    run_what_cannot_be_set(fleet)
    fleet.servers["a"].running = NEW
    target = killed_in_a_change(store, running=OFF_GRID)
    fleet.driver = driver_of(fleet)

    take_up_changes(store, target, fleet.driver)

    assert unfinished_change(store, target) is None
    assert fleet.running == [SPACE.nearest(OFF_GRID)] * 3
    assert store.row("SELECT error FROM decision")["error"].endswith("; all were put back")  # type: ignore[index]
    assert fleet.driver.step().outcome == "held"
    assert fleet.driver.reconciler.theirs is None, "nobody else has set that"


@pytest.mark.parametrize("settable", [False, True])
def test_killed_in_a_rollback_to_what_is_on_no_grid_the_others_follow(
    fleet: Fleet, store: Store, settable: bool
) -> None:
    """The one that was asked before had it, or the nearest that can be set: a repair is not taken back."""
    if not settable:
        run_what_cannot_be_set(fleet)
    for server in fleet.servers.values():
        server.running = NEW
    fleet.servers["a"].running = after = OFF_GRID if settable else SPACE.nearest(OFF_GRID)
    target = killed_in_a_change(store, Rollback(configuration=OFF_GRID, reason="x"), running=NEW)
    fleet.driver = driver_of(fleet)

    sentence = take_up_changes(store, target, fleet.driver)

    assert sentence is not None
    assert sentence.endswith("which came about")
    fleet.driver.step()
    assert fleet.running == [after] * 3
    assert [ban.configuration for ban in fleet.driver.loop.bans()] == [NEW]


def run_what_cannot_be_set(fleet: Fleet) -> None:
    """Let all replicas run what their adapters do not take."""

    def check(wanted: Configuration) -> None:
        if wanted == OFF_GRID:
            raise InvalidInput("knob max_queue_delay", "1e-07 s is not a multiple of 1e-06 s")

    for server in fleet.servers.values():
        server.running, server.check = OFF_GRID, check  # type: ignore[attr-defined]


def killed_in_a_change(
    store: Store, decision: Decision = TRIAL, space: KnobSpace = SPACE, running: Configuration = OLD
) -> int:
    """A change to NEW was under way when the process was killed; returns the target."""
    target = store.target("a", "fake://all", space, running).id
    decided = WindowRecord(number=1, measurement=measurement(), decision=decision, outcome="decided")
    state = RunState(target="fake://all", original=dict(running), current=dict(running))
    store.changing(store.decided(target, decided, state, kept=True))
    return target
