"""Arrival processes: when requests are meant to be sent, whatever the server does.

Each prints as the text that :func:`tuner.workload.notation.parse_arrival` reads back.

Schedules are inverted: unit-rate exponential gaps are mapped through the integral of the rate, so that a
change of the rate takes effect in the middle of a gap, as it does in an inhomogeneous Poisson process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np

from tuner.errors import InvalidInput
from tuner.workload.workload import FASTEST

__all__ = ["Arrival", "Constant", "Gamma", "Poisson", "Ramp", "Scheduled", "Steps"]

CHUNK = 256
"""Random numbers drawn at once: one by one they would cost more than the request."""
SETTING = "--arrival"


class Arrival(Protocol):
    """An arrival process."""

    def times(self, generator: np.random.Generator) -> Iterator[float]:
        """Yield send times, s after the beginning, never decreasing; ends when nothing more is to be sent."""

    def at_rate(self, rate: float) -> Arrival:
        """Return a process of the same kind with another mean rate.

        Raises:
            InvalidInput: The rate is unusable, or the process has a schedule of its own.
        """


class _Steady:
    """Base of processes with one rate."""

    __slots__ = ()
    rate: float

    def __post_init__(self) -> None:
        _check_rate(self.rate)

    def at_rate(self, rate: float) -> Self:
        """Return the same with another rate."""
        return replace(self, rate=rate)  # type: ignore[type-var]  # its subclasses are dataclasses


class Scheduled:
    """Base of processes with rates of their own."""

    __slots__ = ()

    def at_rate(self, rate: float) -> Arrival:
        """Refuse.

        Raises:
            InvalidInput: Always.
        """
        problem = f"{rate:g} cannot be set on '{self}', which has its own rates"
        raise InvalidInput("rate", problem, "set another arrival process")


@dataclass(frozen=True, slots=True)
class Gamma(_Steady):
    """Gamma distributed gaps: shape 1 is Poisson, below 1 bursts, above 1 more even."""

    shape: float
    rate: float
    """Requests/s."""

    def __post_init__(self) -> None:
        _Steady.__post_init__(self)
        if not 0.01 <= self.shape <= 1000:
            raise InvalidInput(SETTING, f"a gamma shape of {self.shape:g} is not between 0.01 and 1000")

    def __str__(self) -> str:
        return f"gamma:{self.shape:g}:{self.rate:.12g}"

    def times(self, generator: np.random.Generator) -> Iterator[float]:
        """Yield sums of gamma distributed gaps."""
        now = 0.0
        while True:
            for gap in generator.gamma(self.shape, 1 / (self.shape * self.rate), CHUNK).tolist():
                now += gap
                yield now


@dataclass(frozen=True, slots=True)
class Poisson(_Steady):
    """Exponential gaps: many independent clients."""

    rate: float
    """Requests/s."""

    def __str__(self) -> str:
        return f"poisson:{self.rate:.12g}"

    def times(self, generator: np.random.Generator) -> Iterator[float]:
        """Yield sums of exponential gaps."""
        return Gamma(1.0, self.rate).times(generator)


@dataclass(frozen=True, slots=True)
class Constant(_Steady):
    """Equal gaps."""

    rate: float
    """Requests/s."""

    def __str__(self) -> str:
        return f"constant:{self.rate:.12g}"

    def times(self, generator: np.random.Generator) -> Iterator[float]:  # noqa: ARG002
        """Yield multiples of the gap."""
        number = 0
        while True:
            number += 1
            yield number / self.rate


@dataclass(frozen=True, slots=True)
class Steps(Scheduled):
    """Poisson with a rate that changes in steps; the last rate goes on without end."""

    steps: tuple[tuple[float, float], ...]
    """(seconds, requests/s) in order."""

    def __post_init__(self) -> None:
        if not self.steps:
            raise InvalidInput(SETTING, "a schedule without steps", "write step:30s@100,30s@300")
        for seconds, rate in self.steps:
            _check_seconds(seconds)
            _check_rate(rate)

    def __str__(self) -> str:
        return "step:" + ",".join(f"{seconds:.12g}s@{rate:.12g}" for seconds, rate in self.steps)

    def times(self, generator: np.random.Generator) -> Iterator[float]:
        """Yield a Poisson process of the rate in force."""
        return _inhomogeneous(tuple((seconds, rate, rate) for seconds, rate in self.steps), generator)


@dataclass(frozen=True, slots=True)
class Ramp(Scheduled):
    """Poisson with a rate that changes linearly; the last rate goes on without end."""

    seconds: float
    first: float
    """Requests/s at the beginning."""
    last: float
    """Requests/s at the end."""

    def __post_init__(self) -> None:
        _check_seconds(self.seconds)
        _check_rate(self.first)
        _check_rate(self.last)

    def __str__(self) -> str:
        return f"ramp:{self.seconds:.12g}s@{self.first:.12g}-{self.last:.12g}"

    def times(self, generator: np.random.Generator) -> Iterator[float]:
        """Yield a Poisson process of the rate in force."""
        return _inhomogeneous(((self.seconds, self.first, self.last),), generator)


def _inhomogeneous(
    segments: tuple[tuple[float, float, float], ...], generator: np.random.Generator
) -> Iterator[float]:
    """Yield a Poisson process whose rate is linear in each (seconds, first rate, last rate)."""
    endless = segments[-1][2]
    begin, passed = 0.0, 0.0  # s, and expected requests, at the beginning of the segment
    reached = 0.0
    position = 0
    while True:
        for gap in generator.exponential(1.0, CHUNK).tolist():
            reached += gap
            while position < len(segments):
                seconds, first, last = segments[position]
                if reached < passed + seconds * (first + last) / 2:
                    break
                begin, passed, position = begin + seconds, passed + seconds * (first + last) / 2, position + 1
            if position < len(segments):
                yield begin + _time_of(reached - passed, *segments[position])
            else:
                yield begin + (reached - passed) / endless


def _time_of(expected: float, seconds: float, first: float, last: float) -> float:
    """Return when a linear rate has brought that many requests: solves first*t + slope*t*t/2 = expected."""
    slope = (last - first) / seconds
    return 2 * expected / (first + math.sqrt(max(first * first + 2 * slope * expected, 0.0)))


def _check_rate(rate: float) -> None:
    if not 0 < rate <= FASTEST:
        raise InvalidInput(SETTING, f"a rate of {rate:g} requests/s is not between 0 and {FASTEST:g}")


def _check_seconds(seconds: float) -> None:
    if not 0 < seconds < math.inf:
        raise InvalidInput(SETTING, f"a step of {seconds:g} s is not a positive duration")
