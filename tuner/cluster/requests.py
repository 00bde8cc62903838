"""The requests that arrive at a cluster, in order of time and in chunks, so that memory stays flat.

Sessions with Poisson arrivals of constant rates are drawn together: exponential gaps at the total rate, and
for each request its session with a probability proportional to the session's rate, which is the same as a
process for each. All others, and Poisson processes that are rare among them, are renewal processes of their
own, which are merged: gaps of unit mean (gamma, or equal) are stretched by the rate schedule. The first gap
is the rest of one that began before time 0, so that the processes are stationary from the beginning, and
sessions are not in step.

Every process has a generator of its own, and so have the sizes of every session. So the requests depend on
the seed and not on the chunks, and the same seed at another rate gives the same requests, faster or slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from tuner.cluster.arrivals import (
    RENEWALS,
    SOURCES,
    ArrivalProcess,
    GivenTimes,
    Renewal,
    Superposition,
    make_generator,
)
from tuner.workload.sizes import SizeDistribution

__all__ = ["CHUNK", "Arriving", "AtOnce", "Chunk", "RequestStream"]

CHUNK = 65_536
"""Requests per chunk, about."""
LEAST_CHUNK = 256
RARE = 1e-3
"""Share of all requests below which those of Poisson processes are not drawn together."""

NO_ITEMS = np.empty(0, np.int64)

SIZES, SHARES = 10, 11
"""Streams of random numbers that share the seed with those of the arrivals."""

Sizes = Sequence[SizeDistribution | None]
"""Of the requests of each session; None for requests of size 1."""


class Chunk(NamedTuple):
    """All arrivals from the previous chunk's ``until`` on and before this one's."""

    time: np.ndarray  # (n,) s, not decreasing
    session: np.ndarray  # (n,) i8
    source: np.ndarray  # (n,) i8, the frontend that receives it
    until: float  # s; infinite: nothing arrives any more
    items: np.ndarray = NO_ITEMS  # (n,) i8, sizes; empty: all of size 1


class Arriving(Protocol):
    """What a simulation needs of a stream of requests."""

    def next_chunk(self) -> Chunk:
        """Return all arrivals from the end of the chunk before to the end of this one."""


class RequestStream:
    """The stream of requests of all sessions; each chunk is given once, in order.

    Args:
        processes: One for each session.
        seed: Of everything random.
        frontends: Each request is received by one of them, chosen at random.
        chunk: Requests per chunk, about.
        sizes: Of the requests of each session; all have size 1 if None.
        count: How many requests of all sessions together arrive; None for no end.
    """

    def __init__(
        self,
        processes: Sequence[ArrivalProcess],
        *,
        seed: int = 0,
        frontends: int = 1,
        chunk: int = CHUNK,
        sizes: Sizes | None = None,
        count: int | None = None,
    ) -> None:
        self._chunk = max(chunk, LEAST_CHUNK)
        self._frontends = frontends
        self._sources = make_generator(seed, SOURCES)
        self._zeros = np.zeros(self._chunk, np.int64)  # shared by chunks, which are only read
        self._until = 0.0
        self._left = math.inf if count is None else count
        self._sizes = None if sizes is None or not any(sizes) else _SizeStream(sizes, seed)
        total = sum(process.rate for process in processes)
        self._window = self._chunk / total  # s, if chunks are not cut by a number of requests
        plain = [index for index, process in enumerate(processes) if process.plain]
        rate = sum(processes[index].rate for index in plain)
        if rate < RARE * total:
            plain = []  # a chunk that ends with the next of so few would hold too many of the others
        self._poisson_count = max(int(self._chunk * rate / total), 1)
        self._poisson = Superposition(plain, [processes[i].rate for i in plain], seed) if plain else None
        self._others: list[Renewal | GivenTimes] = []
        drawn = set(plain)
        for index, process in enumerate(processes):
            if process.times is not None:
                self._others.append(GivenTimes(index, process.times))
            elif index not in drawn:
                block = int(self._chunk * process.rate / total) + 64
                self._others.append(Renewal(index, process, make_generator(seed, RENEWALS, index), block))

    def next_chunk(self) -> Chunk:
        """Return the requests of the next piece of time; empty and until infinity when there are no more."""
        if self._left == 0:
            return Chunk(np.empty(0), NO_ITEMS, NO_ITEMS, math.inf)
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
        if time.size >= self._left:
            time, session = time[: int(self._left)], session[: int(self._left)]
            self._until = math.inf
        self._left -= time.size
        items = NO_ITEMS if self._sizes is None else self._sizes.draw(session)
        return Chunk(time, session, self._receivers(time.size), self._until, items)

    def last_arrival(self) -> float:
        """Return when the last request arrives, s. It uses up all chunks; a stream without end has none."""
        last = 0.0
        while True:
            chunk = self.next_chunk()
            last = float(chunk.time[-1]) if chunk.time.size else last
            if chunk.until == math.inf:
                return last

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


class _SizeStream:
    """The sizes of requests, from a generator for each session."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        self._sizes = sizes
        self._generators = [_size_generator(seed, index) for index in range(len(sizes))]

    def draw(self, session: np.ndarray) -> np.ndarray:
        """Return the sizes of the next requests, given their sessions.   # (n,)."""
        items = np.ones(session.size, np.int64)
        for index, (sizes, generator) in enumerate(zip(self._sizes, self._generators, strict=True)):
            if sizes is not None:
                own = session == index
                items[own] = sizes.sample(generator, int(own.sum()))
        return items


class AtOnce:
    """All requests at time 0, the smallest first, for the oracle, which lets each come when it wants.

    Args:
        shares: Of each session among the requests.
        sizes: Of the requests of each session.
        count: Requests of all sessions together.
        seed: Of everything random.
    """

    def __init__(self, shares: np.ndarray, sizes: Sizes, *, count: int, seed: int) -> None:
        counts = np.random.default_rng((seed, SHARES)).multinomial(count, shares / shares.sum())
        drawn = [
            np.ones(own, np.int64) if one is None else np.sort(one.sample(_size_generator(seed, index), own))
            for index, (one, own) in enumerate(zip(sizes, counts.tolist(), strict=True))
        ]
        self._session = np.repeat(np.arange(len(drawn)), counts)
        self._items = np.concatenate(drawn)

    def next_chunk(self) -> Chunk:
        """Return all; then none."""
        session, items = self._session, self._items
        self._session, self._items = session[:0], items[:0]
        nothing = np.zeros(items.size, np.int64)
        return Chunk(np.zeros(items.size), session, nothing, math.inf, items)


def _size_generator(seed: int, session: int) -> np.random.Generator:
    return np.random.default_rng((seed, SIZES, session))
