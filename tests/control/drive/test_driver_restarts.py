"""The driver and a server that goes and comes back: what it lost is put back, once it is sure that it did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.builders import SPACE, configuration, measurement
from tests.control.drive.driver_bed import (
    Book,
    Clients,
    FakeClock,
    FakeServer,
    Log,
    ServerAndClients,
    away,
    drive,
    raising,
)
from tuner.adapters.backend import ApplyReport
from tuner.control import Apply, Driver, Hold, Rollback, RunState
from tuner.control.decide.memory import Probation
from tuner.control.decide.orders import Orders
from tuner.errors import Refused, StorageError, TimedOut, Unreachable
from tuner.knobs import Configuration
from tuner.measurement import Measurement


def test_a_server_that_dies_is_waited_for_and_restored(tmp_path: Path) -> None:
    """The last good configuration survives in the state file and is put back when the server returns."""
    clock = FakeClock()
    server = FakeServer(clock, lambda c: 0.02 if c != configuration(2) else 0.015)
    state = tmp_path / "state.json"
    driver, heard = drive(server, configuration(2), state=state)
    driver.step()
    driver.step()
    server.away_until = clock.now() + 20
    server.running = configuration()

    record = driver.step()

    assert record.measurement is None
    assert server.running == configuration(2)
    assert clock.now() >= 20
    assert any("waiting for the server" in sentence for sentence in heard)
    assert RunState.load(state).last_good == dict(configuration(2))


class FragileServer(FakeServer):
    """One configuration kills it: it dies of that at once, and comes back with the original one."""

    deaths = 0

    def apply(self, wanted: Configuration) -> ApplyReport:
        report = super().apply(wanted)
        if wanted == configuration(2):
            self.deaths += 1
            away(self, configuration())
        return report


def test_what_the_server_died_of_is_not_tried_again_at_once() -> None:
    """The window after its restart says nothing about the change; that it died does."""
    server = FragileServer(FakeClock(), lambda c: 0.02)
    driver, _ = drive(server, *[configuration(2)] * 9)

    records = [driver.step() for _ in range(8)]

    memory = driver.loop.memory
    assert [record.outcome for record in records] == ["applied", *["held"] * 7]
    assert server.deaths == memory.failed_changes == 1
    assert memory.banned(driver.loop.level or 0) == [SPACE.encode(configuration(2))]


def test_what_the_server_died_of_while_it_took_it_is_not_tried_again_at_once() -> None:
    """Nobody has seen it run, and what ran before runs again; but it was asked for."""
    server = FakeServer(FakeClock(), lambda c: 0.02)
    driver, _ = drive(server, *[configuration(2)] * 9)
    server.apply = raising(Unreachable("connection reset"))  # type: ignore[method-assign, assignment]

    records = [driver.step() for _ in range(4)]

    assert [record.outcome for record in records] == ["failed", *["held"] * 3]
    assert memory_of(driver)[0] == [SPACE.encode(configuration(2))]


def test_what_the_server_died_of_before_the_run_ends_is_remembered(tmp_path: Path) -> None:
    """Nobody took another turn after it had come back: the next run must not try the same again at once."""
    server = FragileServer(FakeClock(), lambda c: 0.02)
    driver, _ = drive(server, configuration(2), state=(state := tmp_path / "state.json"))
    driver.step()
    driver.reconciler.may_have_restarted = True
    server.away_until = -1.0

    assert driver.finish() == server.running == configuration()

    assert [Configuration(ban.configuration) for ban in RunState.load(state).bans] == [configuration(2)]


def test_what_runs_after_the_restart_is_not_blamed() -> None:
    """It breaks the SLO: that was no change of ours."""
    server = FragileServer(FakeClock(), lambda _: 0.02 if server.deaths == 0 else 0.045)
    driver, _ = drive(server, configuration(2))

    records = [driver.step() for _ in range(4)]

    assert not any(isinstance(record.decision, Rollback) for record in records)
    assert memory_of(driver) == ([SPACE.encode(configuration(2))], None)


def memory_of(driver: Driver) -> tuple[list[int], Probation | None]:
    """What is banned under the present load, and what is on probation."""
    memory = driver.loop.memory
    return memory.banned(driver.loop.level or 0), memory.probation


def test_a_restart_while_an_operator_works_on_the_server_is_not_blamed_on_the_change() -> None:
    """But what was on probation is gone, and nothing else is judged in its place."""
    server, book = FragileServer(FakeClock(), lambda c: 0.02), Book()
    driver, _ = drive(server, configuration(2), orders=book)
    driver.step()
    book.orders = Orders(paused="release")

    driver.step()

    assert memory_of(driver) == ([], None)
    assert driver.loop.memory.failed_changes == 0


def test_what_is_put_back_after_a_restart_is_judged_by_the_window_before() -> None:
    """The load has risen meanwhile: what ran at first keeps the SLO of that, too, and runs again."""
    server = FakeServer(FakeClock(), lambda c: 0.02 if c != configuration(2) else 0.015)
    driver, _ = drive(server, configuration(2))
    driver.step()
    driver.step()

    def measure_more(seconds: float, **_: float) -> Measurement:
        p95 = 0.045 if server.running == configuration(2) else 0.02
        return measurement(p95, running=server.running, rate=800.0)

    server.measure = measure_more  # type: ignore[method-assign]
    server.running, driver.reconciler.may_have_restarted = configuration(), True

    first, second = driver.step(), driver.step()

    assert "restoring the last good one" in first.decision.reason
    assert isinstance(second.decision, Rollback)
    assert server.running == configuration()


def test_what_is_put_back_after_a_restart_is_not_banned() -> None:
    """It was seen to be good, and is on probation again because the server had lost it."""
    server = FakeServer(FakeClock(), lambda c: 0.02 if c != configuration(2) else 0.015)
    driver, _ = drive(server, configuration(2))
    driver.step()
    driver.step()

    for _ in range(2):
        away(server, configuration())
        driver.step()

    assert server.running == configuration(2)
    assert memory_of(driver)[0] == []


def test_a_restart_is_noticed_where_the_grids_lack_what_it_ran_at_first() -> None:
    """That is nearest to what was applied; the server lost it all the same."""
    server = FakeServer(FakeClock(), lambda c: 0.025 if c == configuration(8) else 0.010)
    server.running = first = configuration(5)
    driver, _ = drive(server, configuration(8), configuration(4))
    driver.step()
    driver.step()
    assert server.running == configuration(4)
    driver.step()
    away(server, first)

    record = driver.step()

    assert record.outcome == "applied"
    assert "restoring the last good one" in record.decision.reason
    assert server.running == configuration(4)


def test_what_is_put_back_is_what_ran_though_the_grids_lack_it() -> None:
    """Or what is nearest to it, where the server cannot be set to that."""
    server = FakeServer(FakeClock(), lambda c: 0.025 if c == configuration() else 0.010)
    driver, heard = drive(server)
    driver.step()
    server.running = configuration(7)
    for _ in range(3):
        driver.step()
    away(server, configuration())

    driver.step()
    assert server.running == configuration(7)
    away(server, configuration())
    server.cannot_be_set_to = {configuration(7)}
    driver.step()

    assert server.running == configuration(8)
    assert len([sentence for sentence in heard if "somebody else" in sentence]) == 1


def test_gives_up_when_the_server_stays_away() -> None:
    """After the patience one clear error ends the run; the state file keeps the last good configuration."""
    server = FakeServer(FakeClock(), lambda c: 0.02)
    driver, _ = drive(server, patience=30.0)
    driver.step()
    server.away_until = 1e9

    with pytest.raises(Unreachable, match="did not come back within 30 s"):
        driver.step()


def test_a_restart_is_told_from_an_operator_who_puts_the_first_configuration_back() -> None:
    """A server that was never away was not restarted: what it runs was set by somebody, and is respected."""
    server = FakeServer(FakeClock(), lambda c: 0.02 if c != configuration(2) else 0.019)
    driver, heard = drive(server, configuration(2))
    driver.step()
    driver.step()
    server.running = configuration()

    record = driver.step()

    assert isinstance(record.decision, Hold)
    assert server.running == configuration()
    assert any("somebody else set" in sentence for sentence in heard)


@pytest.mark.parametrize(("back_with", "left_with"), [(1, 2), (8, 8)])
def test_a_server_that_restarts_within_a_window(back_with: float, left_with: float) -> None:
    """It was back before anybody asked: what it lost is restored, and what somebody else has set stays."""
    server = FakeServer(FakeClock(), lambda c: 0.02 if c != configuration(2) else 0.015)
    driver, heard = drive(server, configuration(2))
    driver.step()
    driver.step()
    server.running, server.restarted = configuration(back_with), True

    driver.step()

    assert server.running == configuration(left_with)
    assert any("somebody else" in sentence for sentence in heard) == (back_with == 8)
    server.running = configuration()
    driver.step()
    assert server.running == configuration(), "by hand, for the restart was some time ago"


def test_a_server_that_restarts_is_recognised_though_it_has_more_knobs_than_at_first() -> None:
    """Instances were made a knob later, of a model that was deployed with two."""
    server = FakeServer(FakeClock(), lambda c: 0.02)
    server.running = configuration(8, 0.002, 2)
    state = RunState(
        target="fake://x/m",
        original={"max_batch_size": 1.0, "max_queue_delay": 0.0},
        current={"max_batch_size": 8.0, "max_queue_delay": 0.002, "gone": 1.0},
        last_good={"max_batch_size": 8.0, "max_queue_delay": 0.002},
    )
    driver, heard = drive(server, resume=state)
    driver.step()
    assert driver.running == configuration(8, 0.002, 2)
    away(server, configuration(1, 0.0, 2))

    driver.step()

    assert server.running == configuration(8, 0.002, 2)
    assert not any("somebody else" in sentence for sentence in heard)


def test_a_server_that_restarts_does_not_lose_what_our_clients_have() -> None:
    """Their limit is no reason to take the restart for somebody else's change."""
    server, clients = FakeServer(FakeClock(), lambda c: 0.02), Clients()
    wanted = configuration(8).replace(max_in_flight=4.0)
    book = Book(pinned=wanted)
    driver, heard = drive(server, watched=ServerAndClients(server, clients).watched, orders=book)
    driver.step()
    assert (server.running, clients.in_flight) == (configuration(8), 4)
    away(server, configuration())

    driver.step()

    assert (server.running, clients.in_flight) == (configuration(8), 4)
    assert book.orders == Orders(pinned=wanted)
    assert not any("somebody else" in sentence for sentence in heard)


def test_a_server_that_restarts_while_paused_is_told_truly() -> None:
    """Nothing is put back, and nobody says that it is as it was."""
    server, book = FakeServer(FakeClock(), lambda c: 0.02 if c != configuration(2) else 0.015), Book()
    driver, heard = drive(server, configuration(2), orders=book)
    driver.step()
    driver.step()
    book.orders = Orders(paused="release")
    server.running, server.away_until = configuration(), server.clock.now() + 3

    driver.step()

    assert server.running == configuration()
    assert any("lost its configuration" in sentence and "paused" in sentence for sentence in heard)
    assert not any("as it was" in sentence for sentence in heard)


def test_what_was_lost_while_the_disk_was_full_is_put_back_later() -> None:
    """The restoration cannot be written down, so it is not made; the next turn makes it."""
    server, log = FakeServer(FakeClock(), lambda c: 0.02 if c != configuration(2) else 0.015), Log()
    driver, _ = drive(server, configuration(2), journal=log)
    driver.step()
    driver.step()
    server.running, server.away_until = configuration(), server.clock.now() + 3
    log.full = ["decided"]
    with pytest.raises(StorageError):
        driver.step()
    assert server.running == configuration()
    log.full = []

    record = driver.step()

    assert record.outcome == "applied"
    assert server.running == configuration(2)


def restarted(
    failing: Exception, *, windows: int = 6, **oversight: Any
) -> tuple[FakeServer, Driver, Callable[[], None]]:
    """A server that has lost its configuration and fails to take it back, outside the maintenance windows.

    Calling what comes third makes it answer again.

    Args:
        failing: What a change ends in.
        windows: How many it had with the configuration that it has lost.
        **oversight: Fields of `Oversight`.
    """
    server, open_ = FakeServer(FakeClock(), lambda c: 0.02 if c != configuration(2) else 0.015), [True]

    def permit(decision: Apply | Rollback) -> bool:
        return open_[0] or isinstance(decision, Rollback) or decision.restores

    driver, _ = drive(server, configuration(2), *[configuration(4)] * 20, permit=permit, **oversight)
    driver.step()
    open_[0] = False
    for _ in range(windows):
        driver.step()
    away(server, configuration())
    apply, server.apply = server.apply, raising(failing)  # type: ignore[method-assign, assignment]

    def answer() -> None:
        server.apply = apply  # type: ignore[method-assign]

    return server, driver, answer


FAILURES = [TimedOut("did not load it within 90 s"), Unreachable("reset"), Refused("out of memory")]


@pytest.mark.parametrize("error", FAILURES)
def test_a_restoration_that_fails_is_tried_again(error: Exception) -> None:
    """Although nothing else may be changed now; once it has succeeded it is over."""
    server, driver, answer = restarted(error)

    first = driver.step()
    answer()
    second, third = driver.step(), driver.step()

    assert [record.outcome for record in (first, second)] == ["failed", "applied"]
    assert server.running == configuration(2)
    assert not (isinstance(third.decision, Apply) and third.decision.restores)


def test_a_restoration_that_fails_waits_for_the_circuit_breaker() -> None:
    """Three failures in a row, a pause of five windows, one more try."""
    server, driver, answer = restarted(TimedOut("did not load it within 90 s"))

    records = [driver.step() for _ in range(8)]
    answer()
    last = driver.step()

    assert [record.outcome for record in records] == ["failed"] * 3 + ["held"] * 5
    assert (last.outcome, server.running) == ("applied", configuration(2))


def test_what_proves_itself_while_the_circuit_breaker_is_open_is_not_replaced() -> None:
    """One window knew what was lost: nothing is put back at any later time."""
    server, driver, answer = restarted(TimedOut("did not load it within 90 s"), windows=1)
    for _ in range(8):
        driver.step()
    answer()

    assert driver.loop.last_good == configuration()
    driver.step()
    driver.loop.last_good = configuration(2)  # as under another load
    driver.step()
    assert server.running == configuration()


def test_what_the_server_refuses_for_good_keeps_it_from_nothing_else() -> None:
    """A model that was deployed anew may not be able to run it: then it is for the agent to go on."""
    _, driver, _ = restarted(Refused("out of memory"))

    records = [driver.step() for _ in range(9)]

    assert [record.outcome for record in records] == ["failed"] * 3 + ["held"] * 5 + ["postponed"]
    assert records[-1].wanted == configuration(4)


@pytest.mark.parametrize("orders", [Orders(paused="release"), Orders(pinned=configuration())])
def test_a_restoration_that_fails_waits_for_the_operator(orders: Orders) -> None:
    """Until the order ends."""
    book = Book()
    server, driver, answer = restarted(TimedOut("did not load it within 90 s"), orders=book)
    driver.step()
    answer()
    book.orders = orders
    held = driver.step()
    book.orders = Orders()

    assert (held.outcome, server.running) == ("held", configuration())
    assert driver.step().outcome == "applied"
    assert server.running == configuration(2)


def test_an_order_to_go_back_comes_before_what_was_lost() -> None:
    """Which is then not put back any more."""
    book = Book()
    server, driver, answer = restarted(TimedOut("did not load it within 90 s"), orders=book)
    driver.step()
    answer()
    book.orders = Orders(rollback=configuration(8))

    records = [driver.step() for _ in range(2)]

    assert isinstance(records[0].decision, Rollback)
    assert records[1].outcome == "postponed", "what the agent would try"
    assert server.running == configuration(8)


def test_a_restoration_that_is_not_permitted_keeps_the_driver_from_nothing_else() -> None:
    """Until it is, decisions are made as usual."""
    server, open_ = FakeServer(FakeClock(), lambda c: 0.02 if c != configuration(2) else 0.015), [True]
    driver, _ = drive(server, configuration(2), permit=lambda _: open_[0])
    for _ in range(7):
        driver.step()
    open_[0] = False
    away(server, configuration())

    outcomes = [driver.step().outcome for _ in range(3)]
    open_[0] = True
    outcomes.append(driver.step().outcome)

    assert outcomes == ["postponed", "held", "held", "applied"]
    assert server.running == configuration(2)


def test_what_somebody_else_has_set_meanwhile_is_not_replaced_by_what_was_lost() -> None:
    """Nor by a later window, when that configuration runs."""
    server, driver, answer = restarted(TimedOut("did not load it within 90 s"))
    driver.step()
    answer()
    server.running = configuration(8)

    records = [driver.step() for _ in range(3)]

    assert not any(isinstance(record.decision, Apply) and record.decision.restores for record in records)
    assert server.running == configuration(8)


def test_what_a_restarted_server_has_lost_is_put_back_at_the_end() -> None:
    """The run was stopped while it waited for the server."""
    server = FakeServer(FakeClock(), lambda c: 0.02 if c != configuration(2) else 0.015)
    driver, _ = drive(server, configuration(2))
    driver.step()
    driver.step()
    server.running, server.away_until = configuration(), server.clock.now() + 3
    sleep = server.clock.sleep

    def stop(seconds: float) -> NoReturn:
        sleep(seconds)
        raise KeyboardInterrupt

    server.clock.sleep = stop  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        driver.step()
    server.away_until = -1.0

    assert driver.finish() == server.running == configuration(2)
