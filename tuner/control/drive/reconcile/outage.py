"""An outage: waits for a server that is away."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, RetryError, Retrying, retry_if_exception_type, wait_exponential

from tuner.errors import AdapterError, Unreachable
from tuner.profiler.source import Clock

__all__ = ["first_answer"]

LONGEST_WAIT = 5.0
"""Longest pause between two questions to a server that is away, s."""

T = TypeVar("T")


def first_answer(ask: Callable[[], T], clock: Clock, *, patience: float, longest: float) -> T:
    """Return what a server answers, as soon as it does.

    Args:
        ask: Asks it.
        clock: The server's clock; the time may be virtual.
        patience: How long to wait, s.
        longest: Longest pause between two questions, s, if it is less than the usual one.

    Raises:
        Unreachable: It did not come back within the patience.
    """
    deadline = clock.now() + patience

    def too_late(_: RetryCallState) -> bool:
        return clock.now() >= deadline

    attempts = Retrying(
        retry=retry_if_exception_type(AdapterError),
        wait=wait_exponential(multiplier=0.5, max=min(LONGEST_WAIT, longest)),
        stop=too_late,
        sleep=clock.sleep,
    )
    try:
        return attempts(ask)
    except RetryError as error:
        raise Unreachable(f"the server did not come back within {patience:.0f} s") from error
