"""Waiting for a server, which is asked again and again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tuner.adapters.live.waiting import comes_true, insist, wait_until
from tuner.errors import Refused, TimedOut, Unreachable


def answers(*values: bool | Exception) -> Callable[[], bool]:
    """A question that is answered with one value after the other."""
    rest = iter(values)

    def ask() -> bool:
        value = next(rest)
        if isinstance(value, Exception):
            raise value
        return value

    return ask


def test_a_condition_is_asked_until_it_holds() -> None:
    """And at least once, however short the time."""
    assert comes_true(answers(False, False, True), 5.0, poll=0.0)
    assert comes_true(answers(True), 0.0)
    assert not comes_true(answers(False), 0.0)


def test_errors_pass_through_unless_they_mean_not_yet() -> None:
    """A server that restarts is away for a while; one that refuses will not change its mind."""
    assert comes_true(answers(Unreachable("away"), True), 5.0, poll=0.0, despite=(Unreachable,))
    with pytest.raises(Refused):
        comes_true(answers(Refused("no"), True), 5.0, poll=0.0, despite=(Unreachable,))


def test_what_does_not_come_true_is_reported() -> None:
    """In the caller's words."""
    wait_until(answers(False, True), 5.0, "never", poll=0.0)
    with pytest.raises(TimedOut, match="never"):
        wait_until(answers(False), 0.0, "never")


def test_the_last_failure_is_the_reason() -> None:
    """An action is repeated until it succeeds or the time is over."""
    assert insist(answers(Unreachable("away"), True), 5.0, poll=0.0)
    with pytest.raises(Unreachable, match="away"):
        insist(answers(Unreachable("away")), 0.0)
