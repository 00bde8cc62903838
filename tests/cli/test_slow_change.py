"""Whoever watches a run is told of a change that takes long."""

from __future__ import annotations

import queue
import re
import threading

from tuner.cli.slow_change import SlowChange

PROMPT = 30.0
"""Longest wait for a sentence on a busy machine, s."""


def test_a_change_that_takes_long_is_said_again_and_again() -> None:
    """With what the server is to run, until it has ended."""
    said: queue.Queue[str] = queue.Queue()
    slow = SlowChange(said.put, after=0.01, again=0.01)

    slow.begin("batch 8 · delay 2ms")
    first, second = said.get(timeout=PROMPT), said.get(timeout=PROMPT)
    slow.end()

    for sentence in (first, second):
        assert re.fullmatch(r"still changing the server to batch 8 · delay 2ms \(\d+ s so far\)", sentence)


def test_a_change_that_ends_soon_is_not_mentioned() -> None:
    """Most take a second; ending what was not begun does nothing."""
    said: queue.Queue[str] = queue.Queue()
    slow = SlowChange(said.put, after=PROMPT, again=PROMPT)
    before = set(threading.enumerate())

    slow.end()
    slow.begin("batch 8")
    begun = set(threading.enumerate()) - before
    slow.end()
    for thread in begun:
        thread.join(PROMPT)

    assert not any(thread.is_alive() for thread in begun)
    assert said.empty()
