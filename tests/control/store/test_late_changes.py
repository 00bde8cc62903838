"""Changes whose end was not seen: whether they came about is found out, also in a later life."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest

from tests.builders import OBJECTIVE, configuration
from tests.control.drive.driver_bed import (
    Book,
    Clients,
    FakeServer,
    ServerAndClients,
    drive,
    silent,
    unseen,
)
from tests.control.store.lives_bed import BAD, GOOD, life, outcomes, server
from tests.control.store.store_bed import Times
from tuner.control import Apply, Driver, Hold, Rollback
from tuner.control.decide.orders import Orders
from tuner.control.store.journal import StoreJournal
from tuner.control.store.next_life import take_up_changes
from tuner.control.store.store import Store
from tuner.errors import TimedOut
from tuner.knobs import Configuration


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("killed", [True, False])
def test_a_change_that_was_not_answered_ends_when_it_is_known_how(
    store: Store, done: bool, killed: bool
) -> None:
    """By the next window, or by the next life. If it is in force, it is ours and on probation."""
    target = server()
    first, _ = life(store, target, GOOD, BAD)
    first.step()
    silent(target, done=done)
    assert first.step().outcome == "failed"
    assert outcomes(store) == ["held", "applying"]

    driver = life(store, target)[0] if killed else first
    decision = driver.step().decision

    assert outcomes(store)[1] == ("applied" if done else "interrupted" if killed else "failed")
    assert isinstance(decision, Rollback) == done
    assert target.running == GOOD
    assert not [row for row in store.rows("SELECT sentence FROM event") if "somebody" in row["sentence"]]


@pytest.mark.parametrize("batch", [GOOD, BAD])
def test_a_change_of_server_and_clients_is_found_again(store: Store, batch: Configuration) -> None:
    """The daemon was killed when the server had its part: our clients begin anew, as before the change."""
    target = server()
    for pinned in (batch.replace(max_in_flight=4.0), None):
        both = ServerAndClients(target, Clients())
        standing = store.target("a", "fake://x/m", both.backend.space, both.backend.current())
        journal = StoreJournal(store, standing.id, OBJECTIVE)
        both.backend.take_up(standing.state.current)
        book, watched = Book(pinned=pinned), both.watched
        driver, heard = drive(target, journal=journal, resume=standing.state, watched=watched, orders=book)
        sentence = take_up_changes(store, standing.id, driver)
        if pinned:
            silent(target, done=True)
        driver.step()

    assert sentence is not None
    assert ("which came about" in sentence) == (batch == BAD)
    assert outcomes(store)[0] == ("applied" if batch == BAD else "interrupted")
    assert not any("somebody" in sentence for sentence in heard)


def test_a_change_that_was_not_answered_ends_with_the_run(store: Store) -> None:
    """The server is asked once more."""
    target = server()
    first, _ = life(store, target, GOOD, BAD)
    first.step()
    silent(target, done=True)
    first.step()

    assert first.finish() == GOOD
    assert outcomes(store) == ["held", "applied", "applied"]


def test_a_change_that_came_about_late_is_written_down_as_applied(store: Store) -> None:
    """Though windows were measured meanwhile: the decision has its own row, and is judged in a next life."""
    target = server()
    first, _ = life(store, target, GOOD, BAD)
    first.step()
    silent(target, done=False)
    first.step()
    first.step()
    assert outcomes(store) == ["held", "failed", "held"]
    target.running = BAD

    target.measure = unseen  # type: ignore[method-assign]
    first.step()

    assert outcomes(store) == ["held", "applied", "held", "held"]
    error = store.rows("SELECT error FROM decision ORDER BY id")[1]["error"]
    assert error == "connection reset; it came about after all"


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("error", [Killed(), TimedOut("no answer within 90 s")])
def test_a_change_that_comes_about_in_a_later_life_is_ours(store: Store, error: BaseException) -> None:
    """The server was still loading the model when the daemon that asked for it ended."""
    target = server()
    first, _ = life(store, target, GOOD, BAD)
    first.step()

    def load_on(_: Configuration) -> NoReturn:
        raise error

    target.apply = load_on  # type: ignore[method-assign,assignment]
    if isinstance(error, TimedOut):
        first.step()
        assert first.step().outcome == "held"  # it has not come about, and counts as failed
    else:
        with pytest.raises(Killed):
            first.step()
    del target.apply

    second, _ = life(store, target)
    target.running = BAD
    decision = second.step().decision

    assert isinstance(decision, Rollback)
    assert target.running == GOOD
    rows = store.rows("SELECT outcome, error FROM decision WHERE action = 'apply'")
    assert [row["outcome"] for row in rows] == ["applied"]
    assert "came about after all" in rows[0]["error"]
    assert not store.rows("SELECT * FROM event WHERE sentence LIKE '%somebody else%'")


def killed_in(driver: Driver, target: FakeServer, step: str = "while it asks") -> None:
    """The process and the server die in a driver's next change; the server comes back as it was."""

    def die(*_: object) -> NoReturn:
        raise Killed

    with pytest.MonkeyPatch.context() as fatal:
        asking = step == "while it asks"
        fatal.setattr(target if asking else driver._journal, "apply" if asking else "changing", die)
        with pytest.raises(Killed):
            driver.step()


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize("ends", [True, False])
def test_a_server_that_dies_of_a_change_before_the_first_window_of_a_life(
    store: Store, remembers: bool, ends: bool
) -> None:
    """It is not tried again, also where no load is known as no earlier window counts; nor in a third life."""
    target = server()
    first, _ = life(store, target, GOOD, BAD)
    first.step()
    killed_in(first, target)
    target.running = BAD
    driver, sentence = life(store, target, *[BAD] * 4, remembers=remembers)
    assert sentence is not None
    assert sentence.endswith("it is on probation now")

    target.running, target.away_until = GOOD, target.clock.now() + 5  # it boots with what it ran before
    target.measure = unseen  # type: ignore[method-assign]
    driver.step()
    del target.measure
    if ends:
        driver, _ = life(store, target, *[BAD] * 4, remembers=remembers)
    decisions = [driver.step().decision for _ in range(3)]

    assert [type(decision) for decision in decisions] == [Hold] * 3


@pytest.mark.parametrize("step", ["before it asks", "while it asks"])
def test_what_a_host_died_of_with_the_daemon_is_not_tried_again_at_once(store: Store, step: str) -> None:
    """Nor in a life after the next. A server that was not asked yet cannot have died of it."""
    target = server()
    first, _ = life(store, target, GOOD, BAD)
    first.step()
    killed_in(first, target, step)

    bans = [life(store, target)[0].loop.bans() for _ in range(2)]
    third, _ = life(store, target, BAD)

    assert outcomes(store) == ["held", "interrupted"]
    assert [[ban.configuration for ban in one] for one in bans] == [[BAD] * (step == "while it asks")] * 2
    assert isinstance(third.step().decision, Hold) == (step == "while it asks")


def test_a_restoration_in_which_the_daemon_was_killed_is_not_blamed(store: Store) -> None:
    """What it was to restore was seen to be good."""
    best = configuration(2)
    target = server(lambda c: 0.010 if c == best else 0.020)
    first, _ = life(store, target, best)
    for _ in range(3):
        first.step()
    target.running = GOOD
    second, _ = life(store, target)
    killed_in(second, target)

    third, _ = life(store, target)

    assert outcomes(store)[-1] == "interrupted"
    assert third.loop.bans() == []


def refused(store: Store) -> FakeServer:
    """A server that has just refused a change, whose driver has ended."""
    target = server()
    driver, _ = life(store, target, GOOD, BAD)
    driver.step()
    target.refuses = {BAD}
    assert driver.step().outcome == "failed"
    return target


def test_a_change_that_was_to_come_long_ago_is_not_waited_for(store: Store, times: Times) -> None:
    """What runs then was set by somebody else."""
    target = refused(store)
    times.now += 601.0

    driver, _ = life(store, target)

    assert driver.reconciler.unconfirmed is None


def test_a_change_is_not_waited_for_any_longer_because_of_a_restart(store: Store, times: Times) -> None:
    """Ten minutes are counted from its own end: what is set later was set by somebody else."""
    target = refused(store)
    times.now += 590.0

    driver, _ = life(store, target)

    change = driver.reconciler.unconfirmed
    assert change is not None
    assert change.deadline == pytest.approx(driver._clock.now() + 10.0)


def test_a_change_from_what_is_on_no_grid_is_judged_by_the_next_life(store: Store) -> None:
    """A user had set it, or a server made it of a value: failed requests lead back to it all the same."""
    target = server()
    target.running = ran = configuration(delay=0.003)
    first, _ = life(store, target, GOOD)
    assert first.step().outcome == "applied"

    second, _ = life(store, target)
    measured = target.measure
    target.measure = lambda seconds, **more: replace(measured(seconds, **more), failures=50)  # type: ignore[method-assign]
    decision = second.step().decision

    assert isinstance(decision, Rollback)
    assert target.running == ran


@pytest.mark.parametrize("ended", ["before the pause", "in the pause"])
def test_a_change_that_fell_into_a_pause_is_judged_by_the_next_life(store: Store, ended: str) -> None:
    """The windows of the pause judged nothing; as in one life, the first one after it does."""
    target, book = server(), Book()
    driver, _ = life(store, target, GOOD, BAD, orders=book)
    kinds = [type(driver.step().decision) for _ in range(2)]
    book.orders = Orders(paused="by Ada")
    if ended == "before the pause":
        driver, _ = life(store, target, orders=book)
    kinds += [type(driver.step().decision) for _ in range(2)]
    driver, _ = life(store, target, orders=book)
    book.orders = Orders()
    kinds += [type(driver.step().decision) for _ in range(2)]

    assert kinds == [Hold, Apply, Hold, Hold, Rollback, Hold]
    assert target.running == GOOD
