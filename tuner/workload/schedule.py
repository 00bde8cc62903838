"""Rate schedules of virtual clients, and random arrivals that follow them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from tuner.errors import InvalidInput
from tuner.workload.workload import FASTEST

__all__ = ["ArrivalStream", "RateSchedule", "draw_rate", "fill_gaps", "parse_schedule"]

BLOCK = 1024
"""Arrivals drawn at a time."""


@dataclass(frozen=True, kw_only=True)
class RateSchedule:
    """The offered rate over time: constant, or in steps; the last step lasts for ever.

    >>> RateSchedule(steps=((0.0, 150.0), (60.0, 300.0))).rate(61.0)
    300.0

    Raises:
        InvalidInput: The first step is not at 0, times do not increase, or a rate is not a number >= 0;
            the last rate must be positive, so that there is a next request.
    """

    steps: tuple[tuple[float, float], ...]
    """When a rate begins, s, and the rate, requests/s."""

    def __post_init__(self) -> None:
        starts = [start for start, _ in self.steps]
        rates = [rate for _, rate in self.steps]
        if not starts or starts[0] != 0 or any(a >= b for a, b in pairwise(starts)):
            raise InvalidInput(
                "rate", f"the steps '{self}' do not begin at 0 and increase", "write 0:150,60:300"
            )
        if not all(math.isfinite(value) and value >= 0 for value in starts + rates) or rates[-1] <= 0:
            raise InvalidInput("rate", f"'{self}' has a rate that is not positive", "write rate=200")

    def __str__(self) -> str:
        """As a target's option has it: ``0:150,60:300``."""
        if len(self.steps) == 1 and self.steps[0][0] == 0:
            return f"{self.steps[0][1]:g}"
        return ",".join(f"{start:g}:{rate:g}" for start, rate in self.steps)

    @classmethod
    def constant(cls, rate: float) -> RateSchedule:
        """Return the schedule of one rate."""
        return cls(steps=((0.0, float(rate)),))

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.array([start for start, _ in self.steps])  # (k,) s

    @cached_property
    def _rates(self) -> np.ndarray:
        return np.array([rate for _, rate in self.steps])  # (k,) 1/s

    @cached_property
    def _expected(self) -> np.ndarray:
        """Requests expected before each step begins; infinite where it is as good as never.   # (k,)."""
        with np.errstate(over="ignore"):
            return np.concatenate(([0.0], np.cumsum(np.diff(self._starts) * self._rates[:-1])))

    def rate(self, time: float) -> float:
        """Return the offered rate at a time, requests/s."""
        return float(self._rates[np.searchsorted(self._starts, time, side="right") - 1])

    def next_change(self, time: float) -> float:
        """Return when the rate changes next, s; infinite if never."""
        index = int(np.searchsorted(self._starts, time, side="right"))
        return float(self._starts[index]) if index < self._starts.size else math.inf

    def times(self, expected: np.ndarray) -> np.ndarray:
        """Return when each number of requests is expected to have come, from time 0 on.   # (n,) s."""
        # "left": a count reached exactly at the end of a step belongs to that step, not to an idle one.
        step = np.maximum(np.searchsorted(self._expected, expected, side="left") - 1, 0)
        return np.asarray(self._starts[step] + (expected - self._expected[step]) / self._rates[step])


class ArrivalStream:
    """An endless sequence of arrival times that follows a schedule.

    Gaps of unit mean are stretched by the schedule, so the same seed gives the same sequence however
    time is cut into windows and whatever the server's configuration.

    Args:
        schedule: The offered rate.
        generator: Source of randomness; used up by this stream.
        shape: Of the gamma distribution of the gaps: 1 Poisson, below 1 bursts, infinite constant gaps.
        start: When the schedule begins, s.
    """

    def __init__(
        self, schedule: RateSchedule, generator: np.random.Generator, shape: float = 1.0, start: float = 0.0
    ) -> None:
        if not shape > 0:
            raise InvalidInput("shape", f"{shape} is not positive", "1 is Poisson")
        self._schedule = schedule
        self._generator = generator
        self._shape = shape
        self._start = start
        self._sum = 0.0
        self._buffer = np.empty(0)

    def take(self, until: float) -> np.ndarray:
        """Return the arrivals not yet taken, up to and including a time.   # (n,) s."""
        while not self._buffer.size or self._buffer[-1] <= until:
            sums = self._sum + np.cumsum(fill_gaps(np.empty(BLOCK), self._generator, self._shape))
            self._sum = float(sums[-1])
            self._buffer = np.concatenate((self._buffer, self._start + self._schedule.times(sums)))
        count = int(np.searchsorted(self._buffer, until, side="right"))
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken


def fill_gaps(gaps: np.ndarray, generator: np.random.Generator, shape: float) -> np.ndarray:
    """Draw gaps of mean 1 and return them; ``gaps`` is modified in place.

    Args:
        gaps: Where to.   # (n,)
        generator: Source of randomness.
        shape: Of the gamma distribution: 1 Poisson, below 1 bursts, infinite equal gaps.
    """
    if math.isinf(shape):
        gaps[:] = 1.0
    else:
        generator.standard_gamma(shape, out=gaps)
        gaps /= shape
    return gaps


def draw_rate(low: float, high: float, generator: np.random.Generator) -> float:
    """Return a rate between two, requests/s; its logarithm is uniform."""
    return float(np.exp(generator.uniform(np.log(low), np.log(high))))


def parse_schedule(text: str) -> RateSchedule:
    """Read ``200`` or ``0:150,60:300`` (from second 0 on 150 requests/s, from second 60 on 300).

    Raises:
        InvalidInput: Not of that form, or a rate that no simulation comes to the end of.
    """
    try:
        if ":" in text:
            pairs = [part.split(":") for part in text.split(",")]
            schedule = RateSchedule(steps=tuple((float(start), float(rate)) for start, rate in pairs))
        else:
            schedule = RateSchedule.constant(float(text))
    except InvalidInput:
        raise
    except ValueError:
        raise InvalidInput(
            "rate", f"'{text}' is not a rate", "write 200, or 0:150,60:300 for steps"
        ) from None
    highest = max(rate for _, rate in schedule.steps)
    if highest > FASTEST:
        raise InvalidInput("rate", f"{highest:g} requests/s is more than {FASTEST:,.0f}", "write rate=200")
    return schedule
