"""Replicas that have come apart get one configuration again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from tests.builders import SPACE, configuration
from tests.control.drive.canary_bed import NEW, OLD, Fleet, driver_of
from tests.control.drive.driver_bed import Book
from tuner.adapters.backend import ApplyReport
from tuner.control import Apply, Driver, Hold, Rollback
from tuner.control.decide.orders import Orders
from tuner.control.drive.replicas import taken_together
from tuner.errors import Refused, StillLoading, TimedOut, Unreachable
from tuner.knobs import Configuration, Knob, KnobSpace

THEIRS = configuration(16, 0.01, 2)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(canary=False)
    yield fleet
    fleet.group.close()


def driver(fleet: Fleet, notify: Callable[[str], None] = print, **oversight: Any) -> Driver:
    """Give the fleet a driver with orders or limits."""
    fleet.driver = driver_of(fleet, canary=False, notify=notify, **oversight)
    return fleet.driver


def set_apart(fleet: Fleet, *running: Configuration) -> None:
    for server, one in zip(fleet.servers.values(), running, strict=True):
        server.running = one


A, B, C, FIRST = NEW, configuration(4), configuration(8), OLD


@pytest.mark.parametrize(
    ("each", "wanted", "prevails"),
    [
        ([A, A, A], A, A),
        ([A, A, B], A, A),
        ([A, B], A, A),
        ([B, A], A, A),
        ([B, B, A], A, B),
        ([FIRST, FIRST, A], A, A),
        ([FIRST, FIRST, B], A, FIRST),
        ([FIRST, B, A], A, A),
        ([B, C, C], A, C),
        ([A, A, C], C, C),
        ([A, A, B], C, A),
    ],
)
def test_what_prevails(each: list[Configuration], wanted: Configuration, prevails: Configuration) -> None:
    """A was applied; restarted ones have FIRST; `wanted` is a change that nobody saw the end of."""
    found = taken_together(each, SPACE, applied=A, original=FIRST, wanted=wanted)

    assert found.configuration == prevails
    assert bool(found.apart) == (len(set(each)) > 1)


@pytest.mark.parametrize(
    ("each", "wanted", "prevails"),
    [([B, B, A], B, A), ([B, B, C], B, C), ([B, B, B], B, B), ([A, A, C], A, A)],
)
def test_what_one_has_refused_prevails_only_where_all_run_it(
    each: list[Configuration], wanted: Configuration, prevails: Configuration
) -> None:
    """Or where it was applied before: then the change only made them alike."""
    found = taken_together(each, SPACE, applied=A, original=FIRST, wanted=wanted, refused=True)

    assert found.configuration == prevails
    assert bool(found.apart) == (len(set(each)) > 1)


def test_what_our_clients_have_is_lost_by_no_replica() -> None:
    """Two of three have restarted: with the limit that our clients have meanwhile."""
    limit = Knob(name="max_in_flight", grid=(4.0, 16.0), default=16.0, of_clients=True)
    restarted, ours = FIRST.replace(max_in_flight=4.0), A.replace(max_in_flight=4.0)

    found = taken_together(
        [restarted, restarted, ours],
        KnobSpace([*SPACE.knobs, limit]),
        applied=ours,
        original=FIRST.replace(max_in_flight=16.0),
        wanted=ours,
    )

    assert found.configuration == ours


@pytest.mark.parametrize("restarted", [1, 2])
def test_one_that_restarts_gets_the_configuration_of_the_others(fleet: Fleet, restarted: int) -> None:
    """In the next turn, from a window that teaches nothing; nobody is said to have changed it."""
    driver = fleet.driver
    driver.step()
    probation = driver.loop.memory.probation
    set_apart(fleet, *[NEW] * (3 - restarted), *[OLD] * restarted)

    record = driver.step()

    assert fleet.running == [NEW, NEW, NEW]
    assert isinstance(record.decision, Apply)
    assert record.decision.restores
    assert record.decision.reason.startswith(f"replicas differ: {restarted} of 3 run something else than max")
    assert record.measurement is not None
    assert any("replicas differ" in word for word in record.measurement.disturbed)
    assert driver.running == NEW
    assert driver.loop.memory.probation == probation, "the change is still to be judged"
    assert isinstance(driver.step().decision, Hold)


def test_one_that_was_away_gets_the_configuration_of_the_others(fleet: Fleet) -> None:
    """When it answers again."""
    fleet.driver.step()
    fleet.servers["c"].up = False
    fleet.driver.step()
    fleet.servers["c"].running, fleet.servers["c"].up = OLD, True

    fleet.driver.step()

    assert fleet.running == [NEW, NEW, NEW]


def test_a_change_of_which_all_died_is_not_tried_again_at_once(fleet: Fleet) -> None:
    """They came back one after the other, so that somebody answered at the end of each window."""
    fleet.driver.step()
    fleet.servers["c"].up = False
    set_apart(fleet, OLD, OLD, OLD)

    records = [fleet.driver.step() for _ in range(4)]

    assert [type(record.decision) for record in records] == [Hold] * 4
    assert fleet.loop.memory.banned(fleet.loop.level) == [SPACE.encode(NEW)]


def test_all_that_restarted_get_the_last_good_configuration(fleet: Fleet) -> None:
    """Not only if none of them answers."""
    for _ in range(2):
        fleet.driver.step()
    fleet.loop.last_good = NEW
    fleet.servers["c"].up = False
    set_apart(fleet, OLD, OLD, OLD)

    fleet.driver.step()
    assert fleet.running == [NEW, NEW, OLD]

    fleet.servers["c"].up = True
    fleet.driver.step()
    assert fleet.running == [NEW, NEW, NEW]


def test_replicas_that_did_not_go_away_were_changed_by_hand(fleet: Fleet) -> None:
    """Also to what they ran at first."""
    for _ in range(2):
        fleet.driver.step()
    set_apart(fleet, OLD, OLD, OLD)

    decision = fleet.driver.step().decision

    assert isinstance(decision, Hold)
    assert fleet.driver.running == OLD


@pytest.mark.parametrize("apart", [[NEW, NEW, OLD], [OLD, OLD, NEW]])
def test_a_pin_does_not_move_to_what_a_restarted_one_runs(fleet: Fleet, apart: list[Configuration]) -> None:
    """It gets what is pinned."""
    book = Book(pinned=NEW)
    driver(fleet, orders=book).step()
    set_apart(fleet, *apart)

    fleet.driver.step()

    assert fleet.running == [NEW, NEW, NEW]
    assert book.orders == Orders(pinned=NEW)


def test_they_come_together_at_what_is_pinned(fleet: Fleet) -> None:
    """At once, and not first at what ran before the order."""
    book = Book()
    driver(fleet, orders=book).observe()
    set_apart(fleet, OLD, OLD, NEW)
    book.orders = Orders(pinned=THEIRS)

    fleet.driver.step()

    assert fleet.running == [THEIRS, THEIRS, THEIRS]


def test_while_it_is_paused_they_stay_apart(fleet: Fleet) -> None:
    """Nothing is learned from them meanwhile; afterwards they are brought together."""
    book = Book()
    driver(fleet, orders=book).step()
    book.orders = Orders(paused="release")
    set_apart(fleet, NEW, NEW, OLD)

    tried = list(fleet.loop.memory.at(fleet.loop.level).tried)
    paused = fleet.driver.step()
    assert isinstance(paused.decision, Hold)
    assert fleet.running == [NEW, NEW, OLD]
    assert fleet.loop.memory.at(fleet.loop.level).tried == tried

    book.orders = Orders()
    fleet.driver.step()
    assert fleet.running == [NEW, NEW, NEW]


def test_an_order_to_go_back_brings_them_together_by_itself(fleet: Fleet) -> None:
    """They are not given first what the operator has just taken back."""
    book = Book()
    driver(fleet, orders=book).step()
    set_apart(fleet, NEW, NEW, OLD)
    book.orders = Orders(rollback=THEIRS)

    record = fleet.driver.step()

    assert isinstance(record.decision, Rollback)
    assert fleet.running == [THEIRS, THEIRS, THEIRS]


def test_who_only_recommends_leaves_them_apart(fleet: Fleet) -> None:
    """And learns nothing from windows of several configurations."""
    driver(fleet, apply=False).step()
    set_apart(fleet, OLD, OLD, THEIRS)

    record = fleet.driver.step()

    assert fleet.running == [OLD, OLD, THEIRS]
    assert record.outcome == "held"
    assert "replicas differ" in record.decision.reason


def test_what_somebody_gives_most_of_them_stays_and_the_rest_follow(fleet: Fleet) -> None:
    """A change by hand is not undone, and not left half done."""
    fleet.driver.step()
    set_apart(fleet, THEIRS, THEIRS, NEW)

    first = fleet.driver.step()
    assert isinstance(first.decision, Hold)
    assert fleet.running == [THEIRS, THEIRS, NEW]
    fleet.driver.step()

    assert fleet.running == [THEIRS, THEIRS, THEIRS]


def test_one_that_refuses_is_not_asked_in_every_turn(fleet: Fleet) -> None:
    """The circuit breaker opens."""
    fleet.driver.step()
    set_apart(fleet, NEW, NEW, OLD)
    fleet.servers["c"].refuses = True

    records = [fleet.driver.step() for _ in range(6)]

    assert [record.outcome for record in records] == ["failed"] * 3 + ["held"] * 3


def late(fleet: Fleet, name: str) -> None:
    """The next change of a replica comes about, but too late for whoever waits."""
    server = fleet.servers[name]
    apply = server.apply

    def apply_late(wanted: Configuration) -> NoReturn:
        server.apply = apply  # type: ignore[method-assign]
        apply(wanted)
        raise TimedOut("did not load it within 90 s; it may still do so")

    server.apply = apply_late  # type: ignore[method-assign]


def later(fleet: Fleet, name: str) -> None:
    """The next change of a replica comes about only after it was asked to go back, and seemed to be."""
    server = fleet.servers[name]
    apply = server.apply

    def begin(_: Configuration) -> NoReturn:
        server.apply = go_back  # type: ignore[method-assign]
        raise StillLoading("did not load it within 90 s; it may still do so")

    def go_back(wanted: Configuration) -> ApplyReport:
        server.apply = apply  # type: ignore[method-assign]
        report = apply(wanted)  # it still runs that
        server.running = NEW
        return report

    server.apply = begin  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("taking", [["a"], ["a", "b"]])
def test_what_some_take_too_late_and_another_refuses_goes_to_none(fleet: Fleet, taking: list[str]) -> None:
    """They go back, also where they are most of them, and none is asked for it again."""
    heard: list[str] = []
    driver(fleet, heard.append)
    fleet.servers["c"].fails = {NEW: Refused("out of memory")}
    for name in taking:
        later(fleet, name)

    first, second, third = (fleet.driver.step() for _ in range(3))

    assert (first.outcome, second.outcome, third.outcome) == ("failed", "applied", "held")
    assert fleet.running == [OLD, OLD, OLD]
    assert fleet.loop.memory.banned(fleet.loop.level) == [SPACE.encode(NEW)]
    assert not any("came about after all" in sentence for sentence in heard)


def test_a_refusal_of_what_was_in_force_before_changes_nothing(fleet: Fleet) -> None:
    """Two have lost it, of which one is late and one refuses it at first: all get it in the end."""
    fleet.driver.step()
    set_apart(fleet, NEW, OLD, OLD)
    late(fleet, "b")
    fleet.servers["c"].fails = {NEW: Refused("out of memory")}

    first = fleet.driver.step()
    fleet.servers["c"].fails.clear()
    second = fleet.driver.step()

    assert (first.outcome, second.outcome) == ("failed", "applied")
    assert fleet.running == [NEW, NEW, NEW]


def test_a_canary_that_takes_a_change_too_late_goes_back(fleet: Fleet) -> None:
    """The trial has failed; what it runs all the same is not somebody else's."""
    fleet.driver = driver_of(fleet)
    late(fleet, "a")

    first, second = fleet.driver.step(), fleet.driver.step()

    assert first.outcome == "failed"
    assert second.outcome == "applied"
    assert fleet.running == [OLD, OLD, OLD]


def test_a_canary_that_could_not_be_taken_back_goes_back_later(fleet: Fleet) -> None:
    """What was said against the change holds: the others never get it."""
    fleet.driver = driver_of(fleet)
    canary = fleet.servers["a"]
    for server in fleet.servers.values():
        server.slow = True
    apply = canary.apply

    def vanish(wanted: Configuration) -> object:
        if wanted == OLD:
            canary.apply = apply  # type: ignore[method-assign]
            raise Unreachable("a is away")
        return apply(wanted)

    canary.apply = vanish  # type: ignore[method-assign, assignment]
    first, second = fleet.driver.step(), fleet.driver.step()

    assert "it could not be taken back: a is away" in first.error
    assert second.outcome == "applied"
    assert fleet.running == [OLD, OLD, OLD]
    assert [server.applied for server in fleet.servers.values()][1:] == [[OLD], [OLD]]


def test_a_change_that_came_about_at_one_of_them_goes_to_all(fleet: Fleet) -> None:
    """Nobody saw the end of it: all were asked, and one has taken it. It is on probation."""
    late(fleet, "a")
    for name in ("b", "c"):
        fleet.servers[name].up = False
    first = fleet.driver.step()
    for name in ("b", "c"):
        fleet.servers[name].up = True

    fleet.driver.step()

    assert first.outcome == "failed"
    assert fleet.running == [NEW, NEW, NEW]
    probation = fleet.loop.memory.probation
    assert probation is not None
    assert probation.previous == OLD


def test_replicas_that_are_apart_at_the_end_are_left_with_one_configuration(fleet: Fleet) -> None:
    """With the best, although that is what prevails."""
    fleet.servers["c"].fails = {NEW: Refused("out of memory")}
    fleet.driver.step()
    set_apart(fleet, NEW, OLD, OLD)

    left = fleet.driver.finish()

    assert left == OLD
    assert fleet.running == [OLD, OLD, OLD]


def test_a_driver_begins_with_what_most_of_them_run(fleet: Fleet) -> None:
    """The odd one out is brought into line, not the others."""
    set_apart(fleet, NEW, NEW, OLD)

    driver(fleet).step()

    assert fleet.running == [NEW, NEW, NEW]
