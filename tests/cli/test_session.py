"""A run on the terminal: what it says, and to whom, while a server is changed and at the end."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.builders import OBJECTIVE
from tuner.agents.rrl import RRL
from tuner.cli import session as module
from tuner.cli.console import make_console
from tuner.cli.session import TuningSession
from tuner.cli.slow_change import SlowChange
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


def threads_of_changes() -> list[threading.Thread]:
    """Those that watch a change which takes long."""
    return [thread for thread in threading.enumerate() if thread.name == "slow-change"]


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
    for thread in threads_of_changes():
        thread.join(PROMPT)

    with pytest.raises(BrokenPipeError):
        session.say("a window")


def test_what_came_late_and_was_put_back_is_not_said_to_come_still(opened: Open) -> None:
    """The wait for it has seen that it came."""
    terminal = io.StringIO()
    session = opened(terminal)
    original, backend = session.attachment.original, session.attachment.backend
    wanted = Configuration({**original, "max_batch_size": 8.0})
    session.driver.reconciler.expect(original, wanted, late=True)
    backend.apply(wanted)
    session.restore = True

    with session:
        session.finish()

    assert backend.current() == original
    assert "the server may still load" in terminal.getvalue()
    assert "may still come to run" not in terminal.getvalue()
