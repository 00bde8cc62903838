"""Signals that end a command wait for a change of a server, and none of them is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tuner.interruption import ENDING, uninterrupted


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
