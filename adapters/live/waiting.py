"""Waits until a server has done what it was asked to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tuner.adapters.connection.target import LONGEST_LOAD
from tuner.errors import AdapterError, TimedOut

__all__ = ["comes_true", "insist", "longer", "wait_until"]

T = TypeVar("T")

POLL = 0.1
"""How often a server is asked, s."""


def longer(timeout: float) -> str:
    """Return what to do about a model that takes longer to load, or a server to restart, than a target says.

    Args:
        timeout: What it says, s.
    """
    if timeout >= LONGEST_LOAD:
        return f"load_timeout={LONGEST_LOAD:.0f}s is the longest that a target may say"
    seconds = min(max(5 * timeout, 1.0), LONGEST_LOAD)
    return f"if it takes longer to load, write load_timeout={seconds:.0f}s in the target"


def comes_true(
    condition: Callable[[], bool],
    timeout: float,
    *,
    poll: float = POLL,
    despite: tuple[type[Exception], ...] = (),
) -> bool:
    """Ask until a condition holds; return whether it did in time.

    Args:
        condition: Asks the server.
        timeout: Longest wait, s. The condition is asked at least once.
        poll: How long to wait between two questions, s.
        despite: Errors of the condition that only mean "not yet". Others pass through.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            if condition():
                return True
        except despite:
            pass
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll)


def insist(action: Callable[[], T], timeout: float, *, poll: float = POLL) -> T:
    """Repeat an action until it succeeds, and return its result.

    Args:
        action: Raises an :class:`AdapterError` as long as the server is not so far.
        timeout: Longest wait, s. The action is tried at least once.
        poll: How long to wait between two attempts, s.

    Raises:
        AdapterError: The last one, if it did not succeed in time.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return action()
        except AdapterError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(poll)


def wait_until(condition: Callable[[], bool], timeout: float, problem: str, *, poll: float = POLL) -> None:
    """Wait until a condition holds.

    Args:
        condition: Asks the server; its errors pass through.
        timeout: Longest wait, s.
        problem: What to say if it does not come to hold.
        poll: How long to wait between two questions, s.

    Raises:
        TimedOut: It did not come to hold in time.
    """
    if not comes_true(condition, timeout, poll=poll):
        raise TimedOut(problem)
