"""Real time passes, and Ctrl-C interrupts that."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from tuner.profiler.clock import WallClock


def test_time_passes() -> None:
    """As long as was asked, also in more than one piece; no time at all if that is past."""
    clock = WallClock()
    began = clock.now()
    clock.sleep(-1.0)
    clock.sleep(0.6)
    assert clock.now() - began >= 0.6


def test_a_signal_that_another_thread_gets() -> None:
    """It interrupts the sleep all the same, long before its end."""
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()

    def interrupt() -> None:
        time.sleep(0.05)
        assert other.ident is not None
        signal.pthread_kill(other.ident, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    began = time.monotonic()
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            WallClock().sleep(60.0)
        assert time.monotonic() - began < 30.0
    finally:
        signal.signal(signal.SIGINT, before)
        done.set()
        other.join()
