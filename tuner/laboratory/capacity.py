"""How many requests per second a live server bears, found by loading it more and more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.profiler.attachment import Attachment

__all__ = ["FIRST_RATE", "find_capacity"]

FIRST_RATE, LAST_RATE = 20.0, 2560.0
"""The loads that are tried, each twice the one before, requests/s."""
TRIAL = 2.0
"""Length of a window in which such a load is tried, s."""
SATURATED = 0.9
"""A server that answers less than this share of the requests bears no more."""


def find_capacity(attachment: Attachment) -> float:
    """Load a server more and more until it answers no more than it did; return what it answered, requests/s.

    The last load tried is too much for it, or all that we can send: it answers as much as it can. At the end
    its queue is empty.
    """
    rate, bears = FIRST_RATE, 0.0
    while True:
        attachment.set_rate(rate)
        window = attachment.profiler.measure(TRIAL)
        answered = window.requests / window.seconds
        bears = max(bears, answered)
        if answered < SATURATED * window.arrival_rate or rate >= LAST_RATE:
            break
        rate = 2 * rate
    attachment.drain(bears / 4)
    return bears
