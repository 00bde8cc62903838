"""Signals that end a command wait for a change of a server, and none of them is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tuner.interruption import ENDING, HELD, uninterrupted


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Put the handlers of the tests' process back."""
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("ignored", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_waits_although_an_ignored_one_came_with_it(ignored: signal.Signals) -> None:
    """As with nohup, or in a shell's background: one of them is ignored, the other ends the process."""
    signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    done = []

    @uninterrupted()
    def change() -> None:
        for number in (ignored, signal.SIGTERM):
            os.kill(os.getpid(), number)
            done.append(number)

    with pytest.raises(KeyboardInterrupt):
        change()

    assert done == [ignored, signal.SIGTERM]
    assert signal.getsignal(ignored) is signal.SIG_IGN


def test_whoever_stops_a_change_is_told_that_it_has_to_end_first() -> None:
    """Once, and also where the terminal has been closed: the change goes on."""
    said: list[str] = []

    def gone(sentence: str) -> None:
        said.append(sentence)
        raise BrokenPipeError

    @uninterrupted(gone)
    def change() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        change()

    assert said == [HELD]


def test_nothing_is_said_of_a_signal_that_is_ignored() -> None:
    """It stops nothing."""
    said: list[str] = []
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with uninterrupted(said.append):
        signal.raise_signal(signal.SIGHUP)

    assert said == []
