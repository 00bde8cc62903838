"""The requests that arrive at a cluster, in order of time and in chunks, so that memory stays flat.

Sessions with Poisson arrivals of constant rates are drawn together: exponential gaps at the total rate, and
for each request its session with a probability proportional to the session's rate, which is the same as a
process for each. All others, and Poisson processes that are rare among them, are renewal processes of their
own, which are merged: gaps of unit mean (gamma, or equal) are stretched by the rate schedule. The first gap
is what remains of one under way at time 0, so that the processes are stationary from the beginning, and
sessions are not in step.

Every process has a generator of its own, so that what arrives depends on the seed, not on the chunks; and
the same seed at another rate gives the same requests, faster or slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tuner.workload.load import RateSchedule

__all__ = ["CHUNK", "ArrivalProcess", "Chunk", "Workload"]

CHUNK = 65_536
"""Requests per chunk, about."""
LEAST_CHUNK = 256
RARE = 1e-3
"""Share of all requests below which those of Poisson processes are not drawn together."""
BLOCK = 16_384
"""Requests whose sessions are drawn at a time: what fits into the cache takes half the time."""

NO_ITEMS = np.empty(0, np.int64)

# What the streams of random numbers are for: the first part of their key.
GAPS, CHOICES, SOURCES, RENEWALS = range(4)


class Chunk(NamedTuple):
    """All arrivals from the previous chunk's ``until`` on and before this one's."""

    time: np.ndarray  # (n,) s, not decreasing
    session: np.ndarray  # (n,) i8
    source: np.ndarray  # (n,) i8, the frontend that receives it
    until: float  # s; infinite: nothing arrives any more
    items: np.ndarray = NO_ITEMS  # (n,) i8, how large each is; empty: all of size 1


@dataclass(frozen=True, kw_only=True)
class ArrivalProcess:
    """How the requests of one session arrive: random gaps that follow a schedule, or given times.

    >>> ArrivalProcess(schedule=RateSchedule.constant(200.0)).rate
    200.0
    """

    schedule: RateSchedule | None = None
    """Offered rate over time; None with ``times``."""
    shape: float = 1.0
    """Of the gamma distribution of the gaps: 1 Poisson, below 1 bursts, infinite equal gaps."""
    times: np.ndarray | None = None
    """s, not decreasing, at least 0; nothing is random about them.   # (n,)"""
    whole_ms: bool = False
    """Gaps are Poisson-distributed numbers of whole milliseconds, at a constant rate, as in Kairos's code."""

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
        """Whether it is Poisson of a constant rate."""
        constant = self.schedule is not None and len(self.schedule.steps) == 1
        return constant and self.shape == 1 and not self.whole_ms


class Workload:
    """The stream of arrivals of all sessions; each chunk is given once, in order.

    Args:
        processes: One for each session.
        seed: Of everything random.
        frontends: Each request is received by one of them, chosen at random.
        chunk: Requests per chunk, about.
    """

    def __init__(
        self, processes: Sequence[ArrivalProcess], *, seed: int = 0, frontends: int = 1, chunk: int = CHUNK
    ) -> None:
        self._chunk = max(chunk, LEAST_CHUNK)
        self._frontends = frontends
        self._sources = _generator(seed, SOURCES)
        self._zeros = np.zeros(self._chunk, np.int64)  # shared by chunks, which are only read
        self._until = 0.0
        total = sum(process.rate for process in processes)
        self._window = self._chunk / total  # s, if chunks are not cut by a number of requests
        plain = [index for index, process in enumerate(processes) if process.plain]
        rate = sum(processes[index].rate for index in plain)
        if rate < RARE * total:
            plain = []  # a chunk that ends with the next of so few would hold too many of the others
        self._poisson_count = max(int(self._chunk * rate / total), 1)
        self._poisson = _Superposition(plain, [processes[i].rate for i in plain], seed) if plain else None
        self._others: list[_Renewal | _Times] = []
        drawn = set(plain)
        for index, process in enumerate(processes):
            if process.times is not None:
                self._others.append(_Times(index, process.times))
            elif index not in drawn:
                block = int(self._chunk * process.rate / total) + 64
                self._others.append(_Renewal(index, process, _generator(seed, RENEWALS, index), block))

    def next_chunk(self) -> Chunk:
        """Return the arrivals of the next piece of time; empty and until infinity when there are no more."""
        if self._poisson is not None:
            time, session = self._poisson.draw(self._poisson_count)
            self._until = self._poisson.until
        else:
            time, session = np.empty(0), np.empty(0, np.int64)
            self._until += self._window
            if all(other.ended for other in self._others):
                self._until = math.inf
        if self._others:
            time, session = self._merge(time, session)
        return Chunk(time, session, self._receivers(time.size), self._until)

    def _merge(self, time: np.ndarray, session: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        taken = [other.take(self._until) for other in self._others]
        times = np.concatenate([time, *taken])
        owners = [np.full(part.size, other.session) for part, other in zip(taken, self._others, strict=True)]
        order = np.argsort(times, kind="stable")
        return times[order], np.concatenate([session, *owners])[order]

    def _receivers(self, count: int) -> np.ndarray:
        if self._frontends > 1:
            return self._sources.integers(0, self._frontends, count)
        if count > self._zeros.size:
            self._zeros = np.zeros(2 * count, np.int64)
        return self._zeros[:count]


class _Superposition:
    """Poisson processes of constant rates as one, with a random session for each request."""

    def __init__(self, sessions: Sequence[int], rates: Sequence[float], seed: int) -> None:
        self.until = 0.0
        """All requests drawn so far come before it, s."""
        self._last = 0.0
        self._gaps = _generator(seed, GAPS)
        self._choices = _generator(seed, CHOICES)
        self._mean_gap = 1.0 / sum(rates)
        self._sessions = np.array(sessions)
        self._all = list(sessions) == list(range(len(sessions)))
        self._threshold, self._alias = alias_table(np.array(rates))
        self._even = bool((self._threshold >= 1).all())
        self._same = np.empty(0, np.int64)

    def draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return times and sessions of the next requests, of as many as asked for."""
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


class _Renewal:
    """One session's process of random gaps, stretched by its schedule.

    Gaps of whole milliseconds begin with a whole one.
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
        """Return the arrivals before a time that were not taken yet.   # (n,) s."""
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
        """Gaps of unit mean."""
        if self._mean_ms is not None:
            gaps = self._generator.poisson(self._mean_ms, self._block) / self._mean_ms
        elif math.isinf(self._shape):
            gaps = np.ones(self._block)
        else:
            gaps = self._generator.standard_gamma(self._shape, self._block)
            gaps /= self._shape
        if self._first is not None:
            gaps[0], self._first = self._first, None
        return gaps

    def _remainder(self) -> float:
        """What remains, at a random moment, of the gap under way: long gaps are met more often."""
        gap = 1.0
        if math.isfinite(self._shape):
            gap = self._generator.standard_gamma(self._shape + 1) / self._shape
        return gap * (1.0 - self._generator.random())


class _Times:
    """One session's given times."""

    def __init__(self, session: int, times: np.ndarray) -> None:
        self.session = session
        self._times = times
        self._taken = 0

    @property
    def ended(self) -> bool:
        """Whether all were taken."""
        return self._taken == self._times.size

    def take(self, until: float) -> np.ndarray:
        """Return the times before a time that were not taken yet.   # (n,) s."""
        first = self._taken
        self._taken = first + int(np.searchsorted(self._times[first:], until))
        return self._times[first : self._taken]


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Walker's table: take a place at random, keep it with probability ``threshold``, else its alias.

    Args:
        weights: Positive; their sum is of no matter.   # (n,)

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


def _generator(seed: int, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=key)))
