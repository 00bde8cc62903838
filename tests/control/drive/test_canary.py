"""The canary: one of several replicas tries a change before the rest."""

from __future__ import annotations

import math
from typing import NoReturn

import pytest

from tests.builders import OBJECTIVE, SPACE
from tests.control.drive.canary_bed import NEW, OLD, THEIRS, Fleet, driver_of
from tests.control.drive.driver_bed import Book
from tuner.adapters.replicas.canary import Canary, CanaryTrial, ServedRequests
from tuner.adapters.replicas.group import ReplicaGroup
from tuner.adapters.replicas.membership import Membership
from tuner.control import Apply
from tuner.control.decide.orders import Orders
from tuner.control.drive.canary import objection, try_first
from tuner.control.drive.journal import WindowRecord
from tuner.control.store.journal import StoreJournal
from tuner.control.store.store import Store
from tuner.control.store.unfinished import unfinished_change
from tuner.errors import (
    AdapterError,
    InvalidInput,
    Refused,
    StorageError,
    TimedOut,
    TunerError,
    Unreachable,
)
from tuner.knobs import ApplyCost, Configuration


def test_a_good_change_goes_to_one_and_then_to_all(fleet: Fleet) -> None:
    """The others have it a window later."""
    seen = []
    fleet.during = lambda: seen.append(fleet.running)

    record = fleet.driver.step()

    assert record.outcome == "applied"
    assert seen == [[OLD, OLD, OLD], [NEW, OLD, OLD]]
    assert fleet.running == [NEW, NEW, NEW]
    assert fleet.clock.now() == 5.0 + 5.0 + 1.5


def test_a_change_counts_although_only_the_one_that_tried_it_answers(fleet: Fleet) -> None:
    """It ran that already when all were asked: the change was made when it began to try it."""

    def give_up(_: Configuration) -> NoReturn:
        raise TimedOut("no answer within 5 s")

    for name in ("b", "c"):
        fleet.servers[name].apply = give_up  # type: ignore[method-assign, assignment]

    record = fleet.driver.step()

    assert record.outcome == "applied"
    assert record.report is not None
    assert (record.report.changed, record.report.cost) == (True, ApplyCost.RELOAD)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("slow", "even the mean, 100ms against 10ms elsewhere"),
        ("failing", "failed, 0 of 1300 requests elsewhere"),
    ],
)
def test_a_bad_change_never_reaches_the_others(fleet: Fleet, kind: str, word: str) -> None:
    """It is taken back, written down, and not tried again soon; the breaker is not for that."""
    for server in fleet.servers.values():
        setattr(server, kind, True)

    record = fleet.driver.step()
    again = fleet.driver.step()

    assert record.outcome == "failed"
    assert word in record.error
    assert fleet.running == [OLD, OLD, OLD]
    assert [server.applied for server in fleet.servers.values()] == [[NEW, OLD], [], []]
    assert not isinstance(again.decision, Apply)
    assert fleet.loop.memory.failed_changes == 0


def test_a_bad_change_is_told_though_what_ran_before_cannot_be_set(fleet: Fleet) -> None:
    """The trial spoke against it, no server has refused anything; the next turn sets the nearest."""
    found = OLD.replace(max_queue_delay=1e-7)
    mistake = InvalidInput("knob max_queue_delay", "1e-07 s is not a multiple of 1e-06 s")

    def check(wanted: Configuration) -> None:
        if wanted == found:
            raise mistake

    for server in fleet.servers.values():
        server.running, server.slow, server.fails[found] = found, True, mistake
        server.check = check  # type: ignore[attr-defined]
    fleet.driver = driver_of(fleet)

    record = fleet.driver.step()

    assert record.error.startswith("canary a: even the mean")
    assert "could not be taken back: knob max_queue_delay" in record.error
    assert fleet.loop.memory.failed_changes == 0
    fleet.driver.step()
    assert fleet.running == [SPACE.nearest(found)] * 3


def test_a_refusal_by_one_spares_the_others(fleet: Fleet) -> None:
    """As the server said."""
    fleet.servers["a"].refuses = True

    assert fleet.driver.step().error == "no"
    assert [server.applied for server in fleet.servers.values()] == [[], [], []]


def test_what_repairs_goes_to_all_at_once(fleet: Fleet) -> None:
    """There is no time to lose."""
    fleet.driver.step()
    for server in fleet.servers.values():
        server.applied.clear()
    begun = fleet.clock.now()

    back = Apply(configuration=OLD, reason="back", restores=True)
    fleet.driver._actuator.carry_out(WindowRecord(number=2, measurement=None, decision=back))

    assert fleet.running == [OLD, OLD, OLD]
    assert fleet.clock.now() == begun


def test_it_can_be_switched_off() -> None:
    """Then all are changed one after the other."""
    fleet = Fleet(canary=False)
    fleet.driver.step()
    fleet.group.close()

    assert fleet.running == [NEW, NEW, NEW]
    assert fleet.clock.now() == 5.0


@pytest.mark.parametrize(
    ("orders", "why"),
    [
        (Orders(paused="release"), "paused meanwhile: release"),
        (Orders(pinned=OLD), "another order came meanwhile"),
        (Orders(rollback=OLD), "another order came meanwhile"),
        (None, "no change is permitted any more"),
    ],
)
def test_what_is_forbidden_during_the_trial_is_taken_back(
    fleet: Fleet, store: Store, orders: Orders | None, why: str
) -> None:
    """An order, or the end of a maintenance window: the others never get it, and it may be tried again."""
    target, book, closed = store.target("a", "fake://all", SPACE, OLD).id, Book(), list[bool]()
    journal = StoreJournal(store, target, OBJECTIVE)
    fleet.driver = driver_of(fleet, journal=journal, orders=book, permit=lambda _: not closed)

    def forbid() -> None:
        if NEW in fleet.running:
            book.orders = orders or book.orders
            closed.extend([True] * (orders is None))

    fleet.during = forbid
    record = fleet.driver.step()

    assert (record.outcome, record.error) == ("interrupted", why)
    assert [server.applied for server in fleet.servers.values()] == [[NEW, OLD], [], []]
    assert book.orders == (orders or Orders()), "an order that was not followed yet stays"
    assert unfinished_change(store, target) is None
    assert fleet.loop.memory.failed_changes == 0
    assert not fleet.loop.memory.banned(fleet.loop.level or 0)


def test_a_trial_after_which_nobody_can_be_asked_is_taken_back(fleet: Fleet) -> None:
    """One of the others fails just then: the change does not come about, and nobody would judge it there."""

    def ask() -> NoReturn:
        raise AdapterError("b: broken (INTERNAL)")

    with pytest.raises(AdapterError, match="INTERNAL"):
        try_first(fleet.group, NEW, OBJECTIVE.slo, wait=lambda _: None, forbidden=ask)

    assert fleet.running == [OLD, OLD, OLD]


def test_one_that_is_stopped_in_the_middle_gets_its_own_back(fleet: Fleet) -> None:
    """The daemon ends while the canary runs."""

    def stop() -> NoReturn:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fleet.group.try_one(NEW, lambda settle: stop())

    assert fleet.running == [OLD, OLD, OLD]


def test_one_that_dies_of_it_is_not_followed(fleet: Fleet) -> None:
    """The others keep serving with what they run."""

    def die(settle: float) -> None:
        fleet.servers["a"].up = False

    with pytest.raises(Refused, match="a went away with the new configuration"):
        fleet.group.try_one(NEW, die)

    assert fleet.running[1:] == [OLD, OLD]


@pytest.mark.parametrize("runs", [OLD, THEIRS], ids=["restarted", "deployed"])
def test_one_that_loses_it_in_the_trial_is_not_followed(fleet: Fleet, runs: Configuration) -> None:
    """It may have died of it and be back: what was measured is not of the new configuration."""

    def lose() -> None:
        if fleet.servers["a"].running == NEW:
            fleet.servers["a"].running = runs

    fleet.during = lose
    record = fleet.driver.step()

    assert record.outcome == "failed"
    assert record.error == (
        f"a was restarted in its trial, or changed by somebody else: it runs {SPACE.format(runs)}"
    )
    assert fleet.running == [runs, OLD, OLD]
    assert fleet.loop.memory.banned(fleet.loop.level) == [SPACE.encode(NEW)]


def test_what_is_deployed_to_two_in_a_trial_stays_at_both() -> None:
    """Also at the one that tried another: with what it ran before, that would prevail again."""
    fleet = Fleet()
    fleet.servers.pop("c")
    fleet.group.close()
    fleet.group = ReplicaGroup(
        Membership("fake://all", lambda: list(fleet.servers), fleet.servers.__getitem__)
    )
    fleet.driver = driver_of(fleet)

    def deployed() -> None:
        if fleet.servers["a"].running == NEW:
            fleet.servers["a"].running = fleet.servers["b"].running = THEIRS

    fleet.during = deployed
    for _ in range(3):
        fleet.driver.step()
    fleet.group.close()

    assert fleet.running == [THEIRS] * 2


def test_a_single_replica_is_no_canary(fleet: Fleet) -> None:
    """When the others are away there is nobody to compare with."""
    for name in ("b", "c"):
        fleet.servers[name].up = False

    assert fleet.group.try_one(NEW, lambda settle: None) is None
    assert isinstance(fleet.group, Canary)


def share(requests: int = 100, failures: int = 0, mean: float = 0.01) -> ServedRequests:
    return ServedRequests(requests=requests, failures=failures, latency=requests * mean)


@pytest.mark.parametrize(
    ("tried", "others", "bad"),
    [
        (share(), share(), False),
        (share(failures=1), share(), False),
        (share(failures=6), share(), True),
        (share(failures=6), share(failures=5), False),
        (share(failures=1), share(requests=0), True),
        (share(mean=0.05), share(), True),
        (share(mean=0.05), share(mean=0.06), False),
        (share(mean=0.05), share(requests=0), True),
        (share(requests=0), share(), False),
        (share(requests=0, failures=5), share(), True),
    ],
)
def test_what_speaks_against_a_change(tried: ServedRequests, others: ServedRequests, bad: bool) -> None:
    """Only what is beyond doubt; a canary that got no request says nothing."""
    trial = CanaryTrial(server="a", tried=tried, others=others)

    assert bool(objection(trial, OBJECTIVE.slo)) is bad
    assert math.isnan(share(requests=0).mean)


@pytest.mark.parametrize("error", [Unreachable("no answer"), TimedOut("it may still do so")])
@pytest.mark.parametrize("how", ["take back", "change all", "go back", "fail to change all"])
def test_one_that_may_change_later_is_put_right_later(fleet: Fleet, error: AdapterError, how: str) -> None:
    """Nobody knows what it runs, which is no refusal; the others are left alone."""
    canary, group = fleet.servers["a"], fleet.group
    canary.fails[NEW] = error

    with pytest.raises(type(error), match=str(error)):
        group.try_one(NEW, lambda settle: None)
    canary.fails.clear()
    group.take_back()  # too early: it runs what it ran
    canary.running = NEW  # now it has changed
    if how == "take back":
        group.take_back()
    elif how == "fail to change all":
        fleet.servers["c"].fails[THEIRS] = Refused("no")
        with pytest.raises(Refused, match="c: no; the other replicas went back"):
            group.apply(THEIRS)
    else:
        group.apply(OLD if how == "go back" else THEIRS)

    assert fleet.running == [THEIRS if how == "change all" else OLD] * 3


def test_one_that_went_away_in_a_trial_gets_what_the_others_have(fleet: Fleet) -> None:
    """Once it is back: what they got meanwhile."""

    def die(settle: float) -> None:
        fleet.servers["a"].up = False

    with pytest.raises(Refused, match="a went away with the new configuration, and may still have it"):
        fleet.group.try_one(NEW, die)
    with pytest.raises(Unreachable):
        fleet.group.take_back()
    fleet.group.apply(THEIRS)
    fleet.servers["a"].up = True

    fleet.group.take_back()

    assert fleet.running == [THEIRS] * 3


def test_what_somebody_else_sets_during_a_trial_stays(fleet: Fleet) -> None:
    """The others do not get what was tried, and the one that tried it gets what they have."""

    def deployed() -> None:
        if fleet.servers["a"].running == NEW:
            fleet.servers["b"].running = fleet.servers["c"].running = THEIRS

    fleet.during = deployed

    record = fleet.driver.step()
    fleet.during = lambda: None
    assert fleet.running == [OLD, THEIRS, THEIRS]
    for _ in range(2):
        fleet.driver.step()

    assert record.outcome == "interrupted"
    assert fleet.running == [THEIRS] * 3
    assert fleet.driver.reconciler.foreign.taken() == 1


def test_one_that_has_left_for_good_is_not_put_right(fleet: Fleet) -> None:
    """There is nothing to take back."""
    group = ReplicaGroup(
        Membership("fake://all", lambda: list(fleet.servers), fleet.servers.__getitem__, refresh=0.0)
    )
    group.try_one(NEW, lambda settle: None)
    fleet.servers.pop("a")
    group.counters()

    group.take_back()
    group.close()

    assert [server.applied for server in fleet.servers.values()] == [[], []]


def test_a_change_that_fails_after_a_trial_is_taken_back_at_all(fleet: Fleet) -> None:
    """Also at the one that tried it: what it ran before the trial counts."""
    fleet.servers["c"].fails[NEW] = Refused("no")

    record = fleet.driver.step()

    assert record.outcome == "failed"
    assert "c: no; the other replicas went back" in record.error
    assert fleet.running == [OLD, OLD, OLD]


def test_after_a_change_of_all_no_trial_is_left(fleet: Fleet) -> None:
    """What they all run is not taken back."""
    fleet.driver.step()

    fleet.group.take_back()

    assert fleet.running == [NEW, NEW, NEW]


def test_what_breaks_a_trial_off_is_heard_though_it_cannot_be_taken_back(fleet: Fleet) -> None:
    """A stop is a stop, also while the replica is away, which is put right later."""

    def stop(settle: float) -> NoReturn:
        fleet.servers["a"].up = False
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fleet.group.try_one(NEW, stop)
    fleet.servers["a"].up = True
    fleet.group.take_back()

    assert fleet.running == [OLD, OLD, OLD]


@pytest.mark.parametrize("error", [AdapterError("it serves neither"), StorageError("disk full")])
def test_one_that_fails_otherwise_is_put_back_at_once(fleet: Fleet, error: TunerError) -> None:
    """The caller hears why."""
    canary = fleet.servers["a"]
    canary.fails[NEW] = error

    with pytest.raises(type(error)):
        fleet.group.try_one(NEW, lambda settle: None)

    assert canary.applied == [OLD]
