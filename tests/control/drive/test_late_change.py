"""A change that the server may still be at when a command ends is waited for."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import NoReturn

import pytest

from tests.builders import configuration
from tests.control.drive.driver_bed import Book, FakeClock, FakeServer, drive, raising, silent, unseen
from tests.control.drive.test_sweep import Still
from tuner.control.decide.orders import Orders
from tuner.control.drive.reconcile import late_change as module
from tuner.control.drive.reconcile.late_change import await_late_change
from tuner.control.drive.sweep import measure_configurations
from tuner.errors import AdapterError, Refused, StillLoading, TimedOut, Unreachable
from tuner.knobs import Configuration

LATE = StillLoading("Triton did not load the changed model within 90 s; it may still do so")


def late_at_ctrl_c(_: Configuration) -> NoReturn:
    """A change that is late, while somebody presses Ctrl-C."""
    signal.raise_signal(signal.SIGINT)
    raise LATE


class Loading(FakeClock):
    """A clock at which a server comes to run something.

    Args:
        at: When, s.
    """

    def __init__(self, at: float) -> None:
        super().__init__()
        self.at = at
        self.loads: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.time >= self.at:
            self.loads()


def loading(at: float, wanted: Configuration) -> tuple[Loading, FakeServer]:
    """A server that comes to run a configuration at a time."""
    clock = Loading(at)
    server = FakeServer(clock, lambda _: 0.02)
    clock.loads = lambda: setattr(server, "running", wanted)
    return clock, server


def test_it_is_waited_for_until_it_runs() -> None:
    """Then whoever ends the command can put back what shall run."""
    clock, server = loading(120.0, configuration(2))
    said: list[str] = []

    assert await_late_change(server, configuration(2), said.append, clock=clock)

    assert 120.0 <= clock.now() < 122.0
    assert said == [
        "the server may still load max_batch_size=2 max_queue_delay=0ms instances=1: "
        "waiting for up to 600 s until it does; Ctrl-C ends that"
    ]


def test_a_server_that_does_not_come_to_run_it_is_left() -> None:
    """And that is said."""
    clock, server = loading(1e9, configuration(2))
    said: list[str] = []

    assert not await_late_change(server, configuration(2), said.append, clock=clock, seconds=30.0)

    assert clock.now() == 30.0
    assert "may come to run max_batch_size=2" in said[-1]


def test_ctrl_c_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not end the command, which has more to do."""
    clock, server = loading(1e9, configuration(2))
    said: list[str] = []

    def interrupted(_: float) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(clock, "sleep", interrupted)
    await_late_change(server, configuration(2), said.append, clock=clock)

    assert len(said) == 2


def test_a_server_that_is_away_for_a_moment_is_asked_again() -> None:
    """It may be too busy with loading to answer."""
    clock, server = loading(10.0, configuration(2))
    server.away_until = 5.0

    await_late_change(server, configuration(2), lambda _: None, clock=clock)

    assert server.running == configuration(2)


@pytest.mark.parametrize(
    ("error", "late"),
    [
        (LATE, True),
        (TimedOut("version 2 is loaded, but does not serve"), False),
        (TimedOut("127.0.0.1:8001: no answer in time"), False),
        (Unreachable("reset"), False),
        (Refused("out of memory"), False),
    ],
)
def test_only_what_the_server_had_begun_with_is_late(
    error: AdapterError, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is away, hangs, or refuses loads nothing, nor does one that has taken the change back."""
    server = FakeServer(FakeClock(), lambda _: 0.02)
    driver, _ = drive(server, configuration(2))
    monkeypatch.setattr(server, "apply", raising(error))
    driver.step()

    found = driver.reconciler.late_change()

    assert (found is not None) == late
    assert found is None or found.wanted == configuration(2)


@pytest.mark.parametrize("metrics_only", [True, False])
def test_a_server_that_does_not_answer_for_a_moment_may_still_load(
    metrics_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be too busy with loading; that it was restarted is not known."""
    server = FakeServer(FakeClock(), lambda _: 0.02)
    driver, _ = drive(server, configuration(2))
    monkeypatch.setattr(server, "apply", raising(LATE))
    driver.step()

    if metrics_only:
        monkeypatch.setattr(server, "measure", unseen)
    else:
        server.away_until = server.clock.now() + 3.0
    driver.step()

    assert driver.reconciler.late_change() is not None


def test_what_is_left_at_the_end_is_not_on_probation_though_its_end_was_not_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Windows have judged it before; who goes on, as a daemon after a maintenance window, does not again."""
    server = FakeServer(FakeClock(), lambda _: 0.02)
    driver, _ = drive(server, configuration(2))
    driver.step()
    silent(server, done=True)
    driver.finish()
    monkeypatch.setattr(server, "measure", unseen)

    driver.step()

    assert driver.running == server.running == configuration()
    assert driver.loop.memory.probation is None


def test_what_a_rollback_whose_end_was_not_seen_has_undone_is_not_what_is_left_at_the_end() -> None:
    """It was the best by evidence until then; as after any rollback, it is banned."""
    server, book = FakeServer(FakeClock(), lambda c: 0.015 if c == configuration(2) else 0.02), Book()
    driver, _ = drive(server, configuration(2), orders=book)
    driver.step()
    driver.step()
    assert driver.loop.incumbent() == configuration(2)
    book.orders = Orders(rollback=configuration())
    silent(server, done=True)
    driver.step()

    left = driver.finish()

    assert left == server.running == configuration()


def test_a_restart_of_the_server_ends_what_it_was_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to wait for."""
    server = FakeServer(FakeClock(), lambda _: 0.02)
    driver, _ = drive(server, configuration(2))
    monkeypatch.setattr(server, "apply", raising(LATE))
    driver.step()

    server.restarted = True
    driver.step()

    assert driver.reconciler.late_change() is None


def test_ctrl_c_during_a_late_change_does_not_make_it_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the place of the error that says so."""
    server = FakeServer(FakeClock(), lambda _: 0.02)
    driver, _ = drive(server, configuration(2))
    monkeypatch.setattr(server, "apply", late_at_ctrl_c)

    with pytest.raises(KeyboardInterrupt):
        driver.step()

    found = driver.reconciler.late_change()
    assert found is not None
    assert found.wanted == configuration(2)


def test_another_change_that_is_refused_meanwhile_does_not_make_it_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is ours when it comes, and on probation; whoever ends the command waits for it."""
    server = FakeServer(FakeClock(), lambda c: 0.045 if c == configuration(2) else 0.02)
    driver, heard = drive(server, configuration(2), configuration(4))
    with monkeypatch.context() as patched:
        patched.setattr(server, "apply", raising(LATE))
        driver.step()
    server.refuses.add(configuration(4))

    second = driver.step()
    awaited = driver.reconciler.late_change()
    server.running = configuration(2)
    third = driver.step()

    assert (second.outcome, second.wanted) == ("failed", configuration(4))
    assert awaited is not None
    assert awaited.wanted == configuration(2)
    assert any("came about after all" in sentence for sentence in heard)
    assert not any("somebody else" in sentence for sentence in heard)
    assert (type(third.decision).__name__, server.running) == ("Rollback", configuration())


@pytest.mark.parametrize(
    ("change", "error"), [(raising(LATE), StillLoading), (late_at_ctrl_c, KeyboardInterrupt)]
)
def test_a_sweep_waits_before_it_puts_back_what_ran(
    change: Callable[[Configuration], NoReturn],
    error: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the server would come to run what was swept after the sweep has ended, also by Ctrl-C."""
    clock, server = loading(100.0, configuration(2))
    monkeypatch.setattr(module, "WallClock", lambda: clock)
    apply = server.apply

    def late(wanted: Configuration) -> NoReturn:
        server.apply = apply  # type: ignore[method-assign]
        change(wanted)

    server.apply = late  # type: ignore[method-assign]
    sweep = measure_configurations(
        server, Still(), [configuration(2)], seconds=1.0, restore=lambda: server.apply(configuration())
    )

    with pytest.raises(error):
        next(sweep)

    assert clock.now() >= 100.0
    assert server.running == configuration()


def test_a_sweep_of_a_server_that_hangs_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not begun cannot come late."""
    clock, server = loading(1e9, configuration(2))
    monkeypatch.setattr(module, "WallClock", lambda: clock)
    restored: list[float] = []
    server.apply = raising(TimedOut("no answer in time"))  # type: ignore[method-assign, assignment]
    sweep = measure_configurations(
        server, Still(), [configuration(2)], seconds=1.0, restore=lambda: restored.append(clock.now())
    )

    with pytest.raises(TimedOut):
        next(sweep)

    assert restored == [0.0]
