"""The driver and people: somebody changes the server by hand, an operator orders."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest

from tests.builders import SPACE, configuration
from tests.control.drive.driver_bed import (
    Book,
    Clients,
    FakeClock,
    FakeServer,
    Log,
    ServerAndClients,
    away,
    drive,
    unseen,
)
from tuner.control import Hold, Rollback
from tuner.control.decide.orders import Orders
from tuner.control.drive.outcome import Unconfirmed
from tuner.errors import StorageError, Unreachable
from tuner.knobs import Configuration


def test_what_somebody_else_sets_is_not_taken_back_though_ours_was_on_probation() -> None:
    """The probation was of another configuration; even if the SLO breaks now, the change was not ours."""
    server = FakeServer(FakeClock(), lambda c: 0.045 if c == configuration(8) else 0.02)
    driver, _ = drive(server, configuration(2))
    driver.step()
    server.running = configuration(8)

    record = driver.step()

    assert not isinstance(record.decision, Rollback)


def test_what_somebody_else_undid_on_probation_is_not_tried_again_at_once() -> None:
    """The server may have died of it, and begun anew with what was deployed since we came."""
    server = FakeServer(FakeClock(), lambda _: 0.02)
    driver, _ = drive(server, *[configuration(2)] * 9)
    driver.step()
    server.running = configuration(8)

    records = [driver.step() for _ in range(4)]

    assert [record.outcome for record in records] == ["held"] * 4
    assert driver.loop.memory.banned(driver.loop.level or 0) == [SPACE.encode(configuration(2))]


def test_what_somebody_else_sets_is_respected() -> None:
    """An operator's change by hand is noticed, said, and not undone."""
    server = FakeServer(FakeClock(), lambda c: 0.02)
    driver, heard = drive(server, configuration(2))
    driver.step()
    server.running = configuration(8)

    driver.step()

    assert server.running == configuration(8)
    assert any("somebody else set max_batch_size=8" in sentence for sentence in heard)


@pytest.mark.parametrize("judged", [False, True])
def test_what_somebody_else_sets_stays_at_the_end_unless_a_window_has_judged_it(
    monkeypatch: pytest.MonkeyPatch, judged: bool
) -> None:
    """The window in which it was set is disturbed; after another one the best by evidence is left."""
    server = FakeServer(FakeClock(), lambda c: 0.025 if c == configuration(8) else 0.02)
    driver, heard = drive(server)
    driver.step()
    server.running = configuration(8)
    with monkeypatch.context() as patch:
        measure, disturbed = server.measure, ("somebody else changed the configuration",)
        patch.setattr(server, "measure", lambda *a, **k: replace(measure(*a, **k), disturbed=disturbed))
        driver.step()
    if judged:
        driver.step(last=True)

    left = driver.finish()

    assert left == server.running == (configuration() if judged else configuration(8))
    assert ("no window has judged it" in heard[-1]) != judged


@pytest.mark.parametrize("noticed", ["in a turn", "at the end"])
def test_what_a_restart_has_undone_is_not_kept_at_the_end_though_somebody_else_has_set_it(
    noticed: str,
) -> None:
    """Nobody has set what the server runs since then: the best by evidence is left."""
    server, book = FakeServer(FakeClock(), lambda c: 0.015 if c == configuration(2) else 0.02), Book()
    driver, heard = drive(server, configuration(2), orders=book)
    driver.step()
    driver.step()
    server.running, server.measure, measure = configuration(8), unseen, server.measure  # type: ignore[method-assign]
    driver.step()
    server.measure = measure  # type: ignore[method-assign]
    assert driver.running == configuration(8)
    server.running = configuration()
    driver.reconciler.may_have_restarted = True
    if noticed == "in a turn":
        book.orders = Orders(paused="release")
        driver.step()
        book.orders = Orders()

    left = driver.finish()

    assert left == server.running == configuration(2)
    assert not any("no window has judged it" in sentence for sentence in heard)


def test_what_somebody_else_sets_while_a_change_is_decided_is_respected() -> None:
    """Between the window and the change it stays, too, and the next turn notices it."""
    server = FakeServer(FakeClock(), lambda _: 0.02)
    journal = Log()
    driver, heard = drive(server, configuration(2), journal=journal)
    begin = journal.changing

    def changing() -> None:
        begin()
        server.running = configuration(8)

    journal.changing = changing  # type: ignore[method-assign]

    record = driver.step()

    assert (record.outcome, server.running) == ("interrupted", configuration(8))
    assert "somebody else has just set max_batch_size=8" in record.error
    driver.step()
    assert server.running == configuration(8)
    assert driver.reconciler.foreign.taken() == 1
    assert any("somebody else set max_batch_size=8" in sentence for sentence in heard)


def test_what_somebody_else_sets_just_as_it_was_decided_stands_in_no_way() -> None:
    """The decision is carried out, though nothing is left to do, and nobody hears of somebody else."""
    server, journal = FakeServer(FakeClock(), lambda _: 0.02), Log()
    driver, heard = drive(server, configuration(2), journal=journal)
    journal.changing = lambda: setattr(server, "running", configuration(2))  # type: ignore[method-assign]

    record = driver.step()
    driver.step()

    assert (record.outcome, driver.running) == ("applied", configuration(2))
    assert heard == []


def test_changes_by_others_that_repeat_look_like_those_of_a_second_daemon() -> None:
    """Neither daemon knows of the other. One change is more likely a colleague's, and so is one a day."""
    server = FakeServer(FakeClock(), lambda _: 0.02)
    driver, heard = drive(server)
    counted = []
    for size, pause in ((2, 0.0), (4, 0.0), (8, 0.0), (2, 3600.0)):
        server.clock.sleep(pause)
        server.running = configuration(size)
        driver.step()
        counted.append(driver.reconciler.foreign.taken())

    suspicion = "; {} times within an hour: perhaps a second daemon, or another target, tunes this model"
    assert counted == [1, 1, 1, 1]
    assert [sentence.partition("going on from there")[2] for sentence in heard] == [
        "",
        suspicion.format(2),
        suspicion.format(3),
        "",
    ]
    assert driver.reconciler.foreign.taken() == 0


def test_what_is_only_near_to_what_it_ran_at_first_was_set_by_somebody() -> None:
    """It was away, and a batch of 2 is the nearest on the grids to the 3 that it ran when we came."""
    server = FakeServer(FakeClock(), lambda _: 0.02)
    server.running = configuration(3)
    driver, heard = drive(server, configuration(4))
    driver.step()
    driver.step()
    assert server.running == configuration(4)
    driver.loop.last_good = configuration(4)
    away(server, configuration(2))

    driver.step()

    assert server.running == configuration(2)
    assert any("somebody else set max_batch_size=2" in sentence for sentence in heard)


def test_what_a_server_died_of_is_not_tried_again_though_it_was_set_up_anew() -> None:
    """What it begins with is not what it ran when we came: somebody has deployed it since."""
    server = FakeServer(FakeClock(), lambda _: 0.02)
    driver, _ = drive(server, configuration(2), configuration(2))
    driver.step()
    assert server.running == configuration(2)
    away(server, configuration(4))

    decisions = [driver.step().decision for _ in range(3)]

    assert [type(decision) for decision in decisions] == [Hold] * 3
    assert server.running == configuration(4)
    assert driver.loop.memory.banned(driver.loop.level) == [SPACE.encode(configuration(2))]


def test_a_server_that_was_set_up_anew_is_respected() -> None:
    """It was away, and is back with what somebody has given it: that is not what it ran when we came."""
    server = FakeServer(FakeClock(), lambda c: 0.02 if c != configuration(2) else 0.015)
    driver, heard = drive(server, configuration(2))
    driver.step()
    driver.step()
    away(server, configuration(8))

    record = driver.step()

    assert server.running == configuration(8)
    assert any("somebody else set max_batch_size=8" in sentence for sentence in heard)
    assert "is back with max_batch_size=8" in record.decision.reason


def test_what_is_pinned_is_replaced_by_nothing_that_the_server_can_rather_be_set_to() -> None:
    """The nearest value of a grid is not what was ordered."""
    server = FakeServer(FakeClock(), lambda _: 0.02)
    server.cannot_be_set_to = {configuration(7)}
    driver, _ = drive(server, orders=Book(pinned=configuration(7)))

    record = driver.step()

    assert (record.outcome, server.running) == ("failed", configuration())


def test_a_change_that_comes_about_late_is_ours_without_the_part_of_our_clients() -> None:
    """They follow the server, which did not answer; a change of theirs alone does not come about so."""
    server, clients = FakeServer(FakeClock(), lambda c: 0.02), Clients()
    book = Book(pinned=configuration(8).replace(max_in_flight=4.0))
    driver, heard = drive(server, watched=ServerAndClients(server, clients).watched, orders=book)
    apply = server.apply

    def vanish(wanted: Configuration) -> NoReturn:
        server.apply = apply  # type: ignore[method-assign]
        apply(wanted)
        raise Unreachable("connection reset")

    server.apply = vanish  # type: ignore[method-assign]
    driver.step()
    assert clients.in_flight == 16

    driver.step()

    assert (server.running, clients.in_flight) == (configuration(8), 4)
    assert not any("somebody else" in sentence for sentence in heard)
    driver.reconciler.expect(Unconfirmed(driver.running, driver.running.replace(max_in_flight=16.0)))
    driver.step()
    assert len([sentence for sentence in heard if "came about after all" in sentence]) == 1


def test_an_order_to_roll_back_is_followed_though_nothing_is_seen() -> None:
    """Once: it is struck out."""
    server, book = FakeServer(FakeClock(), lambda c: 0.02), Book()
    driver, _ = drive(server, configuration(2), orders=book)
    driver.step()
    book.orders = Orders(rollback=configuration())
    server.measure = unseen  # type: ignore[method-assign]

    driver.step()

    assert server.running == configuration()
    assert book.orders == Orders()


class FullOnce(Book):
    """A book into which nothing can be written for the first time."""

    full = True

    def moved(self, pinned: Configuration, found: Configuration) -> None:
        if self.full:
            self.full = False
            raise StorageError("state s.db: database or disk is full")
        super().moved(pinned, found)


def test_a_pin_that_cannot_be_moved_yet_undoes_nothing() -> None:
    """The disk is full for one turn: the next one notices somebody else's change again, and pins that."""
    server, book = FakeServer(FakeClock(), lambda c: 0.02), FullOnce(pinned=configuration(2))
    driver, heard = drive(server, orders=book)
    driver.step()
    server.running = configuration(16)

    with pytest.raises(StorageError):
        driver.step()
    records = [driver.step(), driver.step()]

    assert [type(record.decision) for record in records] == [Hold, Hold]
    assert server.running == configuration(16)
    assert book.orders == Orders(pinned=configuration(16))
    assert len([sentence for sentence in heard if "somebody else" in sentence]) == 1


def test_a_pause_given_in_the_last_moment_keeps_the_end_from_changing_anything() -> None:
    """The orders are read again: a paused server is left as it is."""
    server, book = FakeServer(FakeClock(), lambda c: 0.02 if c == configuration() else 0.025), Book()
    driver, _ = drive(server, configuration(2), orders=book)
    driver.step()
    book.orders = Orders(paused="release")

    driver.finish()

    assert server.running == configuration(2)


def test_what_somebody_else_sets_before_the_end_stays() -> None:
    """No window has shown it yet: the end asks what runs, and does not undo it."""
    server = FakeServer(FakeClock(), lambda c: 0.02 if c == configuration() else 0.025)
    driver, heard = drive(server, configuration(2))
    driver.step()
    server.running = configuration(16)

    left = driver.finish()

    assert server.running == left == configuration(16)
    assert any("somebody else set max_batch_size=16" in sentence for sentence in heard)


def test_an_outage_is_not_charged_to_the_error_budget() -> None:
    """Neither as a change of ours, nor as that which puts the last good configuration back."""
    server = FakeServer(FakeClock(), lambda c: 0.02 if c != configuration(2) else 0.015)
    driver, _ = drive(server, configuration(2))
    for _ in range(3):
        driver.step()
    before = driver.loop.memory.budget_text()
    server.running, server.away_until = configuration(), server.clock.now() + 60

    driver.step()
    driver.step()

    assert server.running == configuration(2)
    assert driver.loop.memory.budget_text() == before


def test_a_turn_that_decides_nothing_puts_back_what_a_restart_has_undone() -> None:
    """As between two phases of a run, where the server may be changed."""
    server = FakeServer(FakeClock(), lambda c: 0.015 if c == configuration(2) else 0.020)
    driver, _ = drive(server, configuration(2))
    driver.step()
    driver.step()
    server.running, server.restarted = configuration(), True

    record = driver.observe()

    assert (record.outcome, record.level) == ("applied", None), "no window of this load was learned from"
    assert server.running == configuration(2)


def test_an_order_to_go_back_outlives_what_a_restart_has_to_have_put_back() -> None:
    """It is tried once, and that is in the turn after."""
    server, book = FakeServer(FakeClock(), lambda c: 0.015 if c == configuration(2) else 0.020), Book()
    driver, _ = drive(server, configuration(2), orders=book)
    driver.step()
    driver.step()
    server.running, server.restarted = configuration(), True
    book.orders = Orders(rollback=configuration(8))

    running = []
    for _ in range(2):
        driver.step()
        running.append(server.running)

    assert running == [configuration(2), configuration(8)]
    assert book.orders == Orders()


def test_who_only_watches_says_nothing_of_what_a_restart_has_undone() -> None:
    """It is not for them to put it back."""
    server = FakeServer(FakeClock(), lambda c: 0.015 if c == configuration(2) else 0.020)
    driver, _ = drive(server, apply=False)
    driver.step()
    server.running = configuration(2)
    driver.step()
    server.running, server.restarted = configuration(), True

    record = driver.observe()

    assert (record.outcome, record.decision.reason) == ("held", "only observing")
