"""How the requests of one session arrive, and the streams of arrival times that follow from it.

All streams are drawn piece by piece, so that memory stays flat, and give the same times however they are cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.workload.schedule import RateSchedule, fill_gaps

__all__ = ["ArrivalProcess", "GivenTimes", "Renewal", "Superposition", "alias_table", "make_generator"]

BLOCK = 16_384
"""Requests whose sessions are drawn at a time: what fits into the cache takes half the time."""

# What the streams of random numbers are for: the first part of their key.
GAPS, CHOICES, SOURCES, RENEWALS = range(4)


@dataclass(frozen=True, kw_only=True)
class ArrivalProcess:
    """How the requests of one session arrive: with random gaps that follow a schedule, or at given times.

    >>> ArrivalProcess(schedule=RateSchedule.constant(200.0)).rate
    200.0
    """

    schedule: RateSchedule | None = None
    """The offered rate over time; None if ``times`` are given."""
    shape: float = 1.0
    """Shape of the gamma distribution of the gaps: 1 Poisson, below 1 bursts, infinite equal gaps."""
    times: np.ndarray | None = None
    """Arrivals, s, not decreasing, at least 0.   # (n,)"""
    whole_ms: bool = False
    """Whether gaps are Poisson-distributed numbers of whole milliseconds, as in Kairos's code."""

    def __post_init__(self) -> None:
        if (self.schedule is None) == (self.times is None):
            raise ValueError("an arrival process has either a schedule or times")
        if self.whole_ms and (self.schedule is None or len(self.schedule.steps) > 1):
            raise ValueError("gaps of whole milliseconds need a constant rate")
        if not self.shape > 0:
            raise ValueError(f"`shape > 0` must hold, but got {self.shape=}")

    @property
    def rate(self) -> float:
        """The highest rate of the schedule, or the mean rate of the times, requests/s."""
        if self.schedule is not None:
            return max(rate for _, rate in self.schedule.steps)
        assert self.times is not None
        return self.times.size / float(self.times[-1]) if self.times.size and self.times[-1] else 1.0

    @property
    def plain(self) -> bool:
        """Whether it is a Poisson process of constant rate."""
        constant = self.schedule is not None and len(self.schedule.steps) == 1
        return constant and self.shape == 1 and not self.whole_ms


class Superposition:
    """The union of Poisson processes of constant rates: one process, with a random session per request."""

    def __init__(self, sessions: Sequence[int], rates: Sequence[float], seed: int) -> None:
        self.until = 0.0
        """All requests drawn so far come before this time, s."""
        self._last = 0.0
        self._gaps = make_generator(seed, GAPS)
        self._choices = make_generator(seed, CHOICES)
        self._mean_gap = 1.0 / sum(rates)
        self._sessions = np.array(sessions)
        self._all = list(sessions) == list(range(len(sessions)))
        self._threshold, self._alias = alias_table(np.array(rates))
        self._even = bool((self._threshold >= 1).all())
        self._same = np.empty(0, np.int64)

    def draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the times and sessions of the next ``count`` requests."""
        times = self._gaps.standard_exponential(count)
        times *= self._mean_gap
        times[0] += self._last
        np.cumsum(times, out=times)
        if times[0] < self.until:  # so short a gap that rounding took it; the previous chunk is closed
            np.maximum(times, self.until, out=times)
        self._last = float(times[-1])
        self.until = float(np.nextafter(self._last, np.inf))
        return times, self._choose(count)

    def _choose(self, count: int) -> np.ndarray:
        size = self._sessions.size
        if size == 1:
            if self._same.size < count:
                self._same = np.full(count, self._sessions[0])
            return self._same[:count]
        chosen = np.empty(count, np.int64)
        for first in range(0, count, BLOCK):
            part = chosen[first : first + BLOCK]
            place = self._choices.random(part.size)
            place *= size
            part[:] = place  # rounds down
            if not self._even:
                place -= part
                np.copyto(part, self._alias[part], where=place >= self._threshold[part])
            if not self._all:
                part[:] = self._sessions[part]
        return chosen


class Renewal:
    """One session's random gaps, stretched by its schedule.

    It begins inside a gap, so that it is stationary from time 0; gaps of whole milliseconds begin with a
    whole one.
    """

    ended = False

    def __init__(
        self, session: int, process: ArrivalProcess, generator: np.random.Generator, block: int
    ) -> None:
        assert process.schedule is not None
        self.session = session
        self._schedule = process.schedule
        self._shape = process.shape
        self._mean_ms = 1e3 / process.rate if process.whole_ms else None
        self._generator = generator
        self._block = block
        self._first: float | None = None if process.whole_ms else self._remainder()
        self._expected = 0.0  # requests expected by the time of the last one drawn
        self._drawn = np.empty(0)  # (n,) s, drawn but not taken

    def take(self, until: float) -> np.ndarray:
        """Return the arrivals before a time that were not returned yet.   # (n,) s."""
        parts = [self._drawn]
        while not parts[-1].size or parts[-1][-1] < until:
            parts.append(self._draw(parts[-1][-1] if parts[-1].size else 0.0))
        times = np.concatenate(parts)
        count = int(np.searchsorted(times, until))
        self._drawn = times[count:]
        return times[:count]

    def _draw(self, last: float) -> np.ndarray:
        expected = self._gaps()
        expected[0] += self._expected
        np.cumsum(expected, out=expected)
        self._expected = float(expected[-1])
        if len(self._schedule.steps) == 1:
            return np.asarray(expected / self._schedule.steps[0][1])
        times = self._schedule.times(expected)
        times[0] = max(times[0], last)
        return np.maximum.accumulate(times)  # where a step ends, rounding may go back

    def _gaps(self) -> np.ndarray:
        """Return gaps of unit mean.   # (block,)."""
        if self._mean_ms is not None:
            gaps = self._generator.poisson(self._mean_ms, self._block) / self._mean_ms
        else:
            gaps = fill_gaps(np.empty(self._block), self._generator, self._shape)
        if self._first is not None:
            gaps[0], self._first = self._first, None
        return gaps

    def _remainder(self) -> float:
        """Return the rest of a gap at a random moment; a random moment is more often in a long gap."""
        gap = 1.0
        if math.isfinite(self._shape):
            gap = self._generator.standard_gamma(self._shape + 1) / self._shape
        return gap * (1.0 - self._generator.random())


class GivenTimes:
    """One session's given arrival times."""

    def __init__(self, session: int, times: np.ndarray) -> None:
        self.session = session
        self._times = times
        self._taken = 0

    @property
    def ended(self) -> bool:
        """Whether all times were returned."""
        return self._taken == self._times.size

    def take(self, until: float) -> np.ndarray:
        """Return the times before a time that were not returned yet.   # (n,) s."""
        first = self._taken
        self._taken = first + int(np.searchsorted(self._times[first:], until))
        return self._times[first : self._taken]


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Walker's table: draw a place, keep it with probability ``threshold``, otherwise take its alias.

    Args:
        weights: Positive; they need not add up to 1.   # (n,)

    Returns:
        threshold   # (n,) in [0, 1]; 1 where the alias is never taken
        alias       # (n,) i8
    """
    share = weights * (weights.size / weights.sum())
    share[np.abs(share - 1) < 1e-12] = 1.0
    threshold, alias = np.ones(weights.size), np.arange(weights.size)
    small = [index for index in range(share.size) if share[index] < 1]
    large = [index for index in range(share.size) if share[index] >= 1]
    while small and large:
        less, more = small.pop(), large.pop()
        threshold[less], alias[less] = share[less], more
        share[more] -= 1 - share[less]
        (small if share[more] < 1 else large).append(more)
    return threshold, alias


def make_generator(seed: int, *key: int) -> np.random.Generator:
    """Return the generator of one stream of random numbers, which its key names."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=key)))
