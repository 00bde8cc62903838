"""Whoever watches a run is told of a change that takes long."""

from __future__ import annotations

import queue

import pytest

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

    assert first == second == "still changing the server to batch 8 · delay 2ms (0 s so far)"


def test_a_change_that_ends_soon_is_not_mentioned() -> None:
    """Most take a second; ending what was not begun does nothing."""
    said: queue.Queue[str] = queue.Queue()
    slow = SlowChange(said.put, after=0.2, again=0.2)

    slow.end()
    slow.begin("batch 8")
    slow.end()

    with pytest.raises(queue.Empty):
        said.get(timeout=0.4)
