"""What an operator wants of a target: pause, pin, roll back; what the loop makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

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
from tests.control.drive.driver_bed import Book, FakeClock, FakeServer, Log, drive, raising
from tuner.adapters.backend import ApplyReport
from tuner.control import Apply, ControlLoop, Hold, Rollback
from tuner.control.decide.event import Failed, InForce, Ordered, Unseen
from tuner.control.decide.orders import Orders
from tuner.errors import TimedOut
from tuner.knobs import Configuration, KnobSpace

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


@pytest.mark.parametrize(("ordered", "running"), [(4, 5), (5, 4)])
def test_a_server_goes_back_to_what_was_ordered_and_not_to_what_is_nearest(
    ordered: float, running: float
) -> None:
    """The grids have 4 and 8; to go from the one to the other speaks against neither."""
    back, now = configuration(ordered), configuration(running)
    server, book = FakeServer(FakeClock(), lambda _: 0.020), Book(rollback=back)
    server.running = now
    driver, _ = drive(server, orders=book)

    outcomes = [driver.step().outcome for _ in range(2)]

    assert (outcomes, server.running) == (["applied", "held"], back)
    assert book.orders == Orders()
    assert driver.loop.memory.banned(driver.loop.level) == []


def test_a_server_that_rounds_what_it_is_to_go_back_to_is_asked_once() -> None:
    """The order is struck out, whatever it has made of it."""
    server, book = RoundingServer(FakeClock(), lambda _: 0.020), Book(rollback=configuration(4, 0.0085))
    driver, _ = drive(server, orders=book)

    records = [driver.step() for _ in range(3)]

    assert [record.outcome for record in records] == ["applied", "held", "held"]
    assert (server.reloads, book.orders) == (1, Orders())


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


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("paused", ["", "by Ada"])
def test_a_pin_ends_the_probation(seen: bool, paused: str) -> None:
    """Whoever pins what runs has judged it; a late rollback after `unpin` would surprise.

    Also where no window was seen meanwhile; but not while a pause keeps everything as it is.
    """
    loop = loop_with(BETTER)
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration())
    loop.observe(Ordered(Orders(pinned=BETTER, paused=paused)))
    if seen:
        turn(loop, 20.0, measurement(0.045, running=BETTER, end=20.0))
    else:
        loop.observe(Unseen(BETTER, "no answer"))
    loop.observe(Ordered(Orders()))

    decision = turn(loop, 30.0, measurement(0.045, running=BETTER, end=30.0))

    assert isinstance(decision, Rollback) is bool(paused)


def test_an_order_to_go_back_to_what_runs_spares_it_no_judgement() -> None:
    """There is nothing to do for the order: the change is rolled back as any other."""
    loop = loop_with(BETTER)
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration())
    loop.observe(Ordered(Orders(rollback=BETTER)))

    decision = turn(loop, 20.0, measurement(0.090, running=BETTER, end=20.0))

    assert isinstance(decision, Rollback)
    assert decision.configuration == configuration()


def test_a_window_before_an_order_to_go_back_is_carried_out_judges_nothing() -> None:
    """The server refused to go back, so that what runs is on probation as before."""
    loop = loop_with(BETTER)
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration())
    loop.observe(Ordered(Orders(rollback=configuration())))
    ordered = turn(loop, 20.0, measurement(0.020, running=BETTER, end=20.0))
    assert isinstance(ordered, Rollback)
    loop.observe(Failed(ordered))
    loop.observe(Ordered(Orders()))

    assert isinstance(turn(loop, 30.0, measurement(0.090, running=BETTER, end=30.0)), Rollback)


def test_the_circuit_breaker_keeps_no_order_to_go_back() -> None:
    """The operator may know better; and who is paused is told so, not that changes have failed."""
    loop = loop_with()
    turn(loop, 10.0, measurement(0.020))
    for _ in range(3):
        loop.observe(Failed(Apply(configuration=BETTER, reason="")))

    loop.observe(Ordered(Orders(pinned=BETTER)))
    pinned = turn(loop, 20.0, measurement(0.020, end=20.0))
    loop.observe(Ordered(Orders(paused="by Ada")))
    paused = turn(loop, 30.0, measurement(0.020, end=30.0))
    loop.observe(Ordered(Orders(rollback=GOOD)))
    back = turn(loop, 40.0, measurement(0.020, end=40.0))

    assert isinstance(pinned, Hold)
    assert "3 changes in a row failed" in pinned.reason
    assert paused == Hold(reason="paused: by Ada")
    assert isinstance(back, Rollback)


def test_an_order_to_go_back_to_what_runs_opens_no_way_past_the_circuit_breaker() -> None:
    """Nothing is to be done for it, and what the agent would try waits as without the order."""
    loop = loop_with(BETTER)
    for _ in range(3):
        loop.observe(Failed(Apply(configuration=GOOD, reason="")))
    loop.observe(Ordered(Orders(rollback=configuration())))

    decision = turn(loop, 10.0, measurement(0.020))

    assert (type(decision), decision.rule) == (Hold, "circuit breaker")


@pytest.mark.parametrize("orders", [Orders(paused="by Ada"), Orders(pinned=configuration())])
def test_a_search_does_not_end_while_the_operator_keeps_the_server_as_it_is(orders: Orders) -> None:
    """Nothing could be tried then."""
    loop = ControlLoop(SPACE, OBJECTIVE, ScriptedAgent())
    loop.observe(Ordered(orders))
    for number in range(40):
        turn(loop, 10.0 * number, measurement(0.200))

    assert not loop.memory.search_over(loop.level or 0)


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
