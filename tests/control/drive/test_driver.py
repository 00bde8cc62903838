"""The driver: carries decisions out, survives refusals, keeps its state on disk."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NoReturn

import pytest

from tests.builders import SPACE, configuration, measurement
from tests.control.drive.driver_bed import Book, FakeClock, FakeServer, Log, drive, raising, silent, unseen
from tuner.control import Hold, Rollback, RunState
from tuner.errors import Refused, StorageError, TimedOut, Unreachable
from tuner.knobs import Configuration
from tuner.measurement import Measurement


def test_applies_and_settles_before_the_next_window() -> None:
    """After a change the next window begins when the old instances are gone; the one after it at once."""
    server = FakeServer(FakeClock(), lambda c: 0.02)
    driver, _ = drive(server, configuration(2))

    driver.step()
    windows = [driver.step().measurement for _ in range(2)]

    assert server.running == configuration(2)
    assert [window.start for window in windows] == pytest.approx([5.0 + 1.5, 5.0 + 1.5 + 5.0])
    assert driver.reconfigurations == 1


def test_dry_run_changes_nothing() -> None:
    """With apply=False decisions are made and shown, and the server stays as it was."""
    server = FakeServer(FakeClock(), lambda c: 0.02)
    driver, _ = drive(server, configuration(2), apply=False)

    record = driver.step()

    assert record.decision.configuration == configuration(2)
    assert server.running == configuration()


def test_a_refused_configuration_leaves_the_old_one_and_is_banned() -> None:
    """A refusal is reported, not raised, and the loop does not ask for the same again."""
    server = FakeServer(FakeClock(), lambda c: 0.02)
    server.refuses = {configuration(2)}
    driver, _ = drive(server, configuration(2), configuration(2), configuration(4))

    records = [driver.step() for _ in range(4)]

    assert "out of memory" in records[0].error
    assert [r.report is None for r in records] == [True, True, False, True]
    assert server.running == configuration(4)


@pytest.mark.parametrize("error", [Refused("out of memory"), TimedOut("no answer within 5 s")])
def test_a_rollback_that_fails_is_tried_again(error: Exception) -> None:
    """Although nothing else may be changed now, and the configuration to go back to stays a good one."""
    server = FakeServer(FakeClock(), lambda c: 0.045 if c == configuration(2) else 0.02)
    driver, _ = drive(
        server,
        configuration(2),
        permit=lambda decision: isinstance(decision, Rollback) or server.running == configuration(),
    )
    driver.step()
    apply, server.apply = server.apply, raising(error)  # type: ignore[method-assign, assignment]

    first = driver.step()
    server.apply = apply  # type: ignore[method-assign]
    second = driver.step()

    assert (first.outcome, second.outcome) == ("failed", "applied")
    assert isinstance(second.decision, Rollback)
    assert server.running == configuration()


def test_what_the_server_refuses_to_go_back_to_gives_way_to_the_next_best() -> None:
    """Somebody had set it. Three refusals open the circuit breaker, and after that another one is applied."""
    bad, good = configuration(4), configuration()
    server = FakeServer(
        FakeClock(), lambda c: 0.045 if c == bad else 0.010 if c == configuration(2) else 0.02
    )
    driver, _ = drive(server, configuration(2), bad, bad)
    driver.step()
    server.refuses = {configuration(2)}

    records = [driver.step() for _ in range(12)]

    back = [record for record in records if isinstance(record.decision, Rollback)]
    assert [record.outcome for record in back] == ["failed"] * 3 + ["applied"]
    assert server.running == good


def test_a_rollback_goes_near_to_what_the_server_cannot_be_set_to() -> None:
    """It ran a batch of 5 when we came, which its adapter does not take."""
    server = FakeServer(FakeClock(), lambda c: 0.045 if c == configuration(2) else 0.02)
    server.running = configuration(5)
    driver, _ = drive(server, configuration(2))
    server.cannot_be_set_to = {configuration(5)}
    driver.step()

    record = driver.step()

    assert (type(record.decision), record.outcome) == (Rollback, "applied")
    assert server.running == configuration(4)


def test_nothing_is_changed_while_nobody_can_see_how_the_server_does() -> None:
    """The server answers, but its metrics hang: what is on probation is judged when they are back."""
    server = FakeServer(FakeClock(), lambda c: 0.045 if c == configuration(2) else 0.02)
    driver, _ = drive(server, configuration(2))
    driver.step()
    assert server.running == configuration(2)
    measure, server.measure = server.measure, unseen  # type: ignore[method-assign]

    blind = [driver.step() for _ in range(3)]
    server.measure = measure  # type: ignore[method-assign]
    seen = driver.step()

    assert {type(record.decision) for record in blind} == {Hold}
    assert "metrics port 8002: no answer" in blind[-1].decision.reason
    assert isinstance(seen.decision, Rollback)
    assert server.running == configuration()


def test_a_change_is_undone_whose_window_is_overdue() -> None:
    """The server answers, its metrics come byte by byte: nobody would see whether the change was bad."""
    server = FakeServer(FakeClock(), lambda c: 0.045 if c == configuration(2) else 0.02)
    driver, _ = drive(server, configuration(2))
    driver.step()
    assert server.running == configuration(2)

    def dripping(seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> NoReturn:
        server.clock.sleep(6.0)
        unseen(seconds)

    server.measure = dripping  # type: ignore[method-assign]
    *early, overdue, after = (driver.step() for _ in range(4))

    # The window may end 11.5 s after the change: 1.5 s to settle, 5 s for a backlog, and its own 5 s.
    assert [type(record.decision) for record in early] == [Hold, Hold]
    assert isinstance(overdue.decision, Rollback)
    assert "overdue: metrics port 8002: no answer" in overdue.decision.reason
    assert isinstance(after.decision, Hold)
    assert server.running == configuration()


def test_an_outage_delays_a_window_and_makes_none_overdue() -> None:
    """A server that was away is judged when it is back, also if its metrics take a little longer."""
    server = FakeServer(FakeClock(), lambda c: 0.02)
    driver, _ = drive(server, configuration(2))
    driver.step()
    server.away_until = server.clock.now() + 100

    records = [driver.step()]
    measure, server.measure = server.measure, unseen  # type: ignore[method-assign]
    records.append(driver.step())
    server.measure = measure  # type: ignore[method-assign]
    records.append(driver.step())

    assert [type(record.decision) for record in records] == [Hold] * 3
    assert records[0].decision.reason.endswith("the server was away and is back as it was")
    assert server.running == configuration(2)


def test_a_server_is_asked_at_least_twice_in_a_window() -> None:
    """However long it was away: it must not wait for us when it is back."""
    server = FakeServer(FakeClock(), lambda c: 0.02)
    driver, _ = drive(server)
    driver.step()
    server.away_until = server.clock.now() + 100

    driver.step()

    assert server.clock.now() < server.away_until + driver.window / 2


def test_finish_leaves_the_best_configuration() -> None:
    """A run that ends while exploring puts back the best configuration that kept the SLO."""
    server = FakeServer(FakeClock(), lambda c: 0.015 if c == configuration() else 0.025)
    driver, _ = drive(server, configuration(2))
    driver.step()

    left = driver.finish()

    assert left == configuration()
    assert server.running == configuration()


def test_finish_asks_the_server_what_it_runs() -> None:
    """A change that was interrupted may have come about; the best is put back all the same."""
    server = FakeServer(FakeClock(), lambda c: 0.015)
    driver, heard = drive(server, configuration(), configuration(2))
    driver.step()
    apply = server.apply

    def apply_and_stop(wanted: Configuration) -> NoReturn:
        apply(wanted)
        raise KeyboardInterrupt  # it waits until the change has ended

    server.apply = apply_and_stop  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        driver.step()
    server.apply = apply  # type: ignore[method-assign]
    assert server.running == configuration(2)

    driver.finish()

    assert server.running == configuration()
    assert not any("somebody else" in sentence for sentence in heard)


def test_a_full_disk_is_a_clear_error(tmp_path: Path) -> None:
    """When the state cannot be kept any more, the run ends with the file's name."""
    server = FakeServer(FakeClock(), lambda c: 0.02)
    folder = tmp_path / "run"
    folder.mkdir()
    driver, _ = drive(server, configuration(2), state=folder / "state.json")
    (folder / "state.json").unlink()
    folder.rmdir()

    with pytest.raises(StorageError, match=r"state\.json"):
        driver.step()


def test_state_file_is_validated(tmp_path: Path) -> None:
    """A damaged state file gives one clear error."""
    path = tmp_path / "state.json"
    path.write_text('{"target": "x", "original"')

    with pytest.raises(StorageError, match=r"state file .*state\.json: not a state file"):
        RunState.load(path)


def test_a_window_knows_the_change_before_it() -> None:
    """How long it took and whom it affected, once; the objective may charge it."""
    server = FakeServer(FakeClock(), lambda c: 0.02)
    driver, _ = drive(server, configuration(2))

    windows = [driver.step().measurement for _ in range(3)]

    assert [window.change_seconds for window in windows] == [0.0, 0.1, 0.0]
    assert [window.change_requests for window in windows] == [0.0, pytest.approx(20.0), 0.0]


def test_the_journal_hears_of_a_change_before_and_after() -> None:
    """The window first, then that the server is about to be changed, then how it ended."""
    server, log = FakeServer(FakeClock(), lambda c: 0.02), Log()
    driver, _ = drive(server, configuration(2), journal=log)

    driver.step()
    driver.step()

    assert log.lines == [
        ("decided", "decided"),
        ("changing", ""),
        ("changed", ("applied", 2.0)),
        ("decided", "held"),
    ]


def test_a_refusal_is_written_down() -> None:
    """With what the server runs still."""
    server, log = FakeServer(FakeClock(), lambda c: 0.02), Log()
    server.refuses = {configuration(2)}
    driver, _ = drive(server, configuration(2), journal=log)

    record = driver.step()

    assert (record.outcome, record.error) == ("failed", "the server refused: out of memory")
    assert log.lines[-1] == ("changed", ("failed", 1.0))


@pytest.mark.parametrize("full", ["decided", "changing"])
def test_what_cannot_be_written_down_is_not_done(full: str) -> None:
    """Neither the decision nor that it is about to be carried out."""
    server = FakeServer(FakeClock(), lambda c: 0.02)
    driver, _ = drive(server, configuration(2), journal=Log(full))

    try:
        assert driver.step().outcome == "failed"
    except StorageError:
        assert full == "decided"

    assert server.running == configuration()


def test_what_may_not_be_done_now_is_postponed() -> None:
    """The server stays as it is; the journal has what was decided."""
    server, log = FakeServer(FakeClock(), lambda c: 0.02), Log()
    driver, _ = drive(server, configuration(2), journal=log, permit=lambda decision: False)

    record = driver.step()

    assert record.outcome == "postponed"
    assert record.decision.configuration == configuration(2)
    assert server.running == configuration()
    assert log.lines == [("decided", "postponed")]


def test_a_rollback_whose_end_was_not_seen_is_not_on_probation() -> None:
    """What it went back to is good, and what it came from must not be gone back to."""
    server = FakeServer(FakeClock(), lambda c: 0.045 if c == configuration(2) else 0.02)
    driver, heard = drive(server, configuration(2))
    driver.step()
    silent(server, done=True)
    driver.step()
    server.measure = lambda seconds, settle=0.0, enough=math.inf: measurement(  # type: ignore[method-assign, misc]
        running=server.running, failures=9, end=server.clock.now()
    )
    third = driver.step()

    assert any("came about after all" in sentence for sentence in heard)
    assert not isinstance(third.decision, Rollback)


def slow_to_load(server: FakeServer, takes: float) -> None:
    """Its next change comes about only after some seconds, long after the adapter has given up."""
    apply, measure, begun = server.apply, server.measure, server.clock.now()
    loading: list[Configuration] = []

    def give_up(wanted: Configuration) -> NoReturn:
        server.apply = apply  # type: ignore[method-assign]
        loading.append(wanted)
        server.clock.sleep(90.0)
        raise TimedOut("Triton did not load the changed model within 90 s; it may still do so")

    def load_and_measure(seconds: float, **options: float) -> Measurement:
        if loading and server.clock.now() > begun + takes:
            server.running = loading.pop()
        return measure(seconds, **options)

    server.apply = give_up  # type: ignore[method-assign]
    server.measure = load_and_measure  # type: ignore[method-assign]


def test_a_change_that_comes_minutes_late_is_ours_and_on_probation() -> None:
    """A large model: it has failed as long as the old configuration runs; then it is judged."""
    server, log = FakeServer(FakeClock(), lambda c: 0.045 if c == configuration(2) else 0.02), Log()
    driver, heard = drive(server, configuration(2), journal=log)
    slow_to_load(server, 180.0)

    records = [driver.step() for _ in range(20)]

    assert not any("somebody else" in sentence for sentence in heard)
    assert [type(record.decision).__name__ for record in records if record.outcome != "held"] == [
        "Apply",
        "Rollback",
    ]
    assert server.running == configuration()
    assert [detail for what, detail in log.lines if what == "changed"] == [
        ("failed", 1.0),
        ("applied", 2.0),
        ("applied", 1.0),
    ]


def test_a_change_that_comes_late_and_proves_good_is_chosen_again_like_any_other() -> None:
    """What has failed is not tried again for a while, until a window lets it stay."""
    server = FakeServer(FakeClock(), lambda c: 0.015 if c == configuration(2) else 0.02)
    driver, _ = drive(server, configuration(2))
    slow_to_load(server, 180.0)
    driver.step()
    banned = driver.loop.memory.banned(driver.loop.level)

    while server.running == configuration():
        driver.step()

    assert banned == [SPACE.encode(configuration(2))]
    assert driver.loop.memory.banned(driver.loop.level) == []
    for _ in range(5):
        driver.step()
    assert driver.loop.last_good == driver.finish() == configuration(2)


def test_what_appears_long_after_a_change_was_given_up_is_somebody_elses() -> None:
    """Ten minutes are enough for any model."""
    server = FakeServer(FakeClock(), lambda c: 0.02)
    driver, heard = drive(server, configuration(2))
    slow_to_load(server, 800.0)

    while server.running == configuration():
        driver.step()

    assert any("somebody else set max_batch_size=2" in sentence for sentence in heard)
    assert driver.loop.memory.probation is None


def test_a_change_is_not_waited_for_once_somebody_else_has_set_something() -> None:
    """What comes about after that is not what was decided on, and is respected."""
    server = FakeServer(FakeClock(), lambda c: 0.02)
    driver, heard = drive(server, configuration(2))
    slow_to_load(server, 1000.0)
    driver.step()
    server.running = configuration(8)
    driver.step()
    server.running = configuration(2)

    driver.step()

    assert len([sentence for sentence in heard if "somebody else" in sentence]) == 2


def test_a_change_whose_end_was_not_seen_is_ours() -> None:
    """The server went away in the middle and came back with it: it is on probation, not somebody else's."""
    server = FakeServer(FakeClock(), lambda c: 0.5 if c == configuration(2) else 0.02)
    driver, heard = drive(server, configuration(2))
    silent(server, done=True)
    first = driver.step()
    second = driver.step()

    assert (first.outcome, first.error) == ("failed", "connection reset")
    assert any("came about after all" in sentence for sentence in heard)
    assert not any("somebody else" in sentence for sentence in heard)
    assert (type(second.decision).__name__, second.outcome) == ("Rollback", "applied")
    assert server.running == configuration()
    assert (driver.reconfigurations, driver.loop.memory.failed_changes) == (2, 0), "it counts as a change"


def test_the_last_window_tries_nothing() -> None:
    """No window would judge it, and the end would take it back: two reloads for nothing."""
    server = FakeServer(FakeClock(), lambda c: 0.02)
    driver, _ = drive(server, configuration(2))

    record = driver.step(last=True)
    driver.finish()

    assert isinstance(record.decision, Hold)
    assert server.running == configuration()
    assert driver.reconfigurations == 0


def test_the_last_window_takes_back_what_breaks_the_slo() -> None:
    """And does what an operator has ordered; without leave to change anything it still says what it would."""
    server = FakeServer(FakeClock(), lambda c: 0.045 if c == configuration(2) else 0.02)
    driver, _ = drive(server, configuration(), configuration(2))
    pinned, _ = drive(FakeServer(FakeClock(), lambda c: 0.02), orders=Book(pinned=configuration(8)))
    dry, _ = drive(FakeServer(FakeClock(), lambda c: 0.02), configuration(2), apply=False)

    driver.step()
    driver.step()
    assert server.running == configuration(2)
    record = driver.step(last=True)

    assert isinstance(record.decision, Rollback)
    assert server.running == configuration()
    assert pinned.step(last=True).outcome == "applied"
    assert dry.step(last=True).outcome == "recommended"


class WithoutMetrics(FakeServer):
    """It answers, but nobody can measure it."""

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        self.clock.sleep(settle)
        raise Unreachable("metrics port 8002: connection refused")


def test_metrics_that_are_away_for_days() -> None:
    """They are looked for once a window, and said to be away once."""
    server = WithoutMetrics(FakeClock(), lambda _: 0.020)
    driver, heard = drive(server)

    turns = 0
    while server.clock.now() < 600.0:
        driver.step()
        turns += 1

    assert 100 < turns < 130
    assert len(heard) == 2
    assert all("connection refused" in sentence for sentence in heard)


def test_an_outage_is_said_again_after_a_window() -> None:
    """It is another one."""
    server = FakeServer(FakeClock(), lambda _: 0.020)
    driver, heard = drive(server)
    measure, said = server.measure, []

    for away in (True, True, False, True):
        server.measure = unseen if away else measure  # type: ignore[method-assign]
        driver.step()
        said.append(len(heard))

    assert said[0] == said[1] == said[2] > 0
    assert said[3] == 2 * said[0]


def test_a_server_that_was_restarted_while_no_driver_watched_gets_back_what_it_lost() -> None:
    """Windows are numbered on from the earlier life."""
    first, lost = dict(configuration()), dict(configuration(2))
    state = RunState(target="fake://x/m", original=first, current=lost, last_good=lost, window=7)
    server = FakeServer(FakeClock(), lambda _: 0.020)
    driver, _ = drive(server, resume=state)

    record = driver.step()

    assert (record.number, record.outcome) == (8, "applied")
    assert server.running == configuration(2)
