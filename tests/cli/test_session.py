"""A run on the terminal: what it says, and to whom, while a server is changed and at the end."""

from __future__ import annotations

import io
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.builders import OBJECTIVE
from tuner.agents.rrl import RRL
from tuner.cli import session as module
from tuner.cli.console import make_console
from tuner.cli.session import TuningSession
from tuner.cli.slow_change import SlowChange
from tuner.control.drive.outcome import Unconfirmed
from tuner.errors import StorageError, Unreachable
from tuner.interruption import HELD, uninterrupted
from tuner.knobs import Configuration
from tuner.profiler.attachment import attach_for
from tuner.setting import Setting

PROMPT = 30.0
"""Longest wait for another thread on a busy machine, s."""
Open = Callable[[io.StringIO], TuningSession]


class Gone(io.StringIO):
    """A terminal whose reader has gone; it notes that something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def write(self, text: str) -> int:
        self.written.set()
        raise BrokenPipeError


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Open a run of a simulated server, which prints into a file."""
    setting = Setting(objective=OBJECTIVE)

    with attach_for(setting, "sim://mlp?rate=150") as attachment:

        def start(file: io.StringIO) -> TuningSession:
            console = make_console()
            console.file = file
            agent = partial(RRL, attachment.space, seed=0, synchronous=True)
            return TuningSession.start(
                attachment,
                setting,
                lambda objective: agent(objective=objective),
                out=tmp_path / "run",
                console=console,
            )

        yield start


def join_threads_of_changes(timeout: float = PROMPT) -> bool:
    """Wait for those that watch a change; return whether they have ended in time."""
    threads = [thread for thread in threading.enumerate() if thread.name == "slow-change"]
    for thread in threads:
        thread.join(timeout)
    return not any(thread.is_alive() for thread in threads)


def test_a_run_whose_reader_went_during_a_change_ends_with_its_next_line(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would go on for ever if what is said of the change silenced all that follows."""
    monkeypatch.setattr(module, "SlowChange", partial(SlowChange, after=0.01, again=PROMPT))
    terminal = Gone()
    session = opened(terminal)

    session.state.restoring()
    assert terminal.written.wait(PROMPT)
    session.state.stands(session.driver._state())
    join_threads_of_changes()

    with pytest.raises(BrokenPipeError):
        session.say("a window")


def test_what_came_late_and_was_put_back_is_not_said_to_come_still(opened: Open) -> None:
    """The wait for it has seen that it came."""
    terminal = io.StringIO()
    session = opened(terminal)
    original, backend = session.attachment.original, session.attachment.backend
    wanted = Configuration({**original, "max_batch_size": 8.0})
    session.driver.reconciler.expect(Unconfirmed(original, wanted, late=True))
    backend.apply(wanted)
    session.restore = True

    with session:
        session.finish()

    assert backend.current() == original
    assert "the server may still load" in terminal.getvalue()
    assert "may still come to run" not in terminal.getvalue()


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("away", [False, True])
def test_what_the_server_runs_at_the_end_is_what_it_says_itself(
    opened: Open, monkeypatch: pytest.MonkeyPatch, broken: bool, away: bool
) -> None:
    """Also after an error; of one that does not answer, as one whose model was unloaded, it is not known."""
    terminal = io.StringIO()
    session = opened(terminal)

    def unloaded() -> Configuration:
        raise Unreachable("h:8001 no longer serves 'mlp'")

    with suppress(StorageError), session:
        session.step()
        if away:
            monkeypatch.setattr(session.attachment.backend, "current", unloaded)
        if broken:
            raise StorageError("no space left")
        session.finish()

    printed = " ".join(terminal.getvalue().split())
    assert ("the server runs batch" in printed, "not known what the server runs" in printed) == (
        not away,
        away,
    )


def test_a_change_that_was_broken_off_is_not_said_to_go_on(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a window there is nothing to change at the end, which would end it."""
    monkeypatch.setattr(module, "SlowChange", partial(SlowChange, after=PROMPT))
    session = opened(io.StringIO())
    session.state.restoring()

    with session:
        session.finish()

    assert join_threads_of_changes(5.0)


def interrupting(then: Callable[[], object] = lambda: None) -> Callable[[], None]:
    """An action in the middle of which somebody presses Ctrl-C."""

    def act() -> None:
        signal.raise_signal(signal.SIGINT)
        then()

    return act


@pytest.mark.parametrize(("restores", "times"), [(True, 1), (False, 0)])
def test_only_a_change_at_the_end_is_said_to_have_to_end_first(
    restores: bool, times: int, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once; not where the server is only asked what it runs."""
    terminal = io.StringIO()
    session = opened(terminal)
    session.restore = restores
    owner, name = (session.attachment, "restore") if restores else (session.driver, "finish")
    monkeypatch.setattr(owner, name, interrupting(getattr(owner, name)))

    with pytest.raises(KeyboardInterrupt):
        session._settle()

    assert terminal.getvalue().count(HELD) == times


@pytest.mark.parametrize("restores", [False, True])
def test_what_the_server_runs_is_said_though_somebody_presses_ctrl_c_at_the_end(
    restores: bool, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: the run has ended by then, and is not left in good order again."""
    terminal = io.StringIO()
    session = opened(terminal)
    session.restore = restores
    owner, name = (session.attachment, "restore") if restores else (session.driver, "finish")
    monkeypatch.setattr(owner, name, interrupting(getattr(owner, name)))

    with pytest.raises(KeyboardInterrupt), session:
        session.finish()

    assert terminal.getvalue().count("the server runs batch") == 1


def test_a_change_at_the_end_says_once_that_it_has_to_end_first(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that wait for its end one says so."""
    terminal = io.StringIO()
    session = opened(terminal)

    def finish() -> None:
        with uninterrupted(session.say):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(session.driver, "finish", finish)
    with pytest.raises(KeyboardInterrupt):
        session._settle()

    assert terminal.getvalue().count(HELD) == 1
