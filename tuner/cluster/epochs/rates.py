"""The rates of sessions, as a planner learns them from the requests that came."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tuner.cluster.epochs.record import Observed

__all__ = ["KnownRates", "RateEstimate", "changed"]

LOW, HIGH = 0.8, 1.1
"""Of a rate; outside, it has changed."""
SURE = 4.0
"""Standard deviations of a Poisson number that chance explains; with 3, one of a few hundred sessions would
seem to have changed at every other look."""


class KnownRates(NamedTuple):
    """What is known of the rates."""

    rate: np.ndarray  # (M,) requests/s
    seconds: np.ndarray  # (M,) for how long it was seen


def changed(seen: Observed, known: KnownRates, cost: np.ndarray) -> np.ndarray:
    """Return which sessions' rates have clearly changed; all of them, if the total load has.   # (M,) bool.

    Args:
        seen: The requests that came in an interval.
        known: The rates that were known before.
        cost: The time of an accelerator that a request of each session takes, s.   # (M,)
    """
    expected = known.rate * seen.seconds
    variance = np.maximum(expected, 1.0) * (1 + seen.seconds / known.seconds)
    load = _outside(cost @ seen.requests, cost @ expected, cost**2 @ variance)
    return np.asarray(load | _outside(seen.requests, expected, variance))


def _outside(found: np.ndarray, expected: np.ndarray, variance: np.ndarray) -> np.ndarray:
    clear = np.abs(found - expected) > SURE * np.sqrt(variance)
    return np.asarray(clear & ((found < LOW * expected) | (found > HIGH * expected)))


class RateEstimate:
    """The mean rate of each session, in which what came long ago counts less.

    Where the last look shows clearly another rate, the mean begins again with it.

    Args:
        rate: A first guess, requests/s.   # (M,)
        cost: What a request of each session costs of an accelerator, s.   # (M,)
        memory: After how long what came counts a third, s.
    """

    def __init__(self, rate: np.ndarray, cost: np.ndarray, memory: float) -> None:
        self._cost, self._memory = cost, memory
        self._requests, self._seconds = rate * memory, np.full(rate.size, memory)

    @property
    def known(self) -> KnownRates:
        """What is known now."""
        return KnownRates(self._requests / self._seconds, self._seconds)

    def see(self, seen: Observed) -> None:
        """Learn from what came since the last look."""
        kept = np.where(changed(seen, self.known, self._cost), 0.0, math.exp(-seen.seconds / self._memory))
        self._requests = kept * self._requests + seen.requests
        self._seconds = kept * self._seconds + seen.seconds
