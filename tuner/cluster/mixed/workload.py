"""The queries that arrive at a mixed cluster: when, of which session, and of how many items."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.cluster.workload import ArrivalProcess, Chunk, Workload
from tuner.planning.pools.sizes import SizeDistribution

__all__ = ["AtOnce", "QueryWorkload"]

LARGEST_CHUNK = 65_536
SIZES, SHARES = 10, 11  # streams of random numbers that share the seed with the arrivals'


class QueryWorkload:
    """So many queries in order of time; after the last of them nothing arrives any more.

    The same seed at other rates gives the same queries, faster or slower (with gaps of whole milliseconds, of
    the same sizes).

    Args:
        processes: How the queries of each session arrive.
        sizes: How large they are.
        count: Of all sessions together.
        seed: Of everything random.
    """

    def __init__(
        self,
        processes: Sequence[ArrivalProcess],
        sizes: Sequence[SizeDistribution],
        *,
        count: int,
        seed: int,
    ) -> None:
        self._arrivals = Workload(processes, seed=seed, chunk=min(count + 1, LARGEST_CHUNK))
        self._sizes = sizes
        self._generators = [np.random.default_rng((seed, SIZES, index)) for index in range(len(sizes))]
        self._left = count

    def next_chunk(self) -> Chunk:
        """Return the queries of the next piece of time; after the last, none and until infinity."""
        chunk = self._arrivals.next_chunk()
        count = min(chunk.time.size, self._left)
        self._left -= count
        session = chunk.session[:count]
        items = np.zeros(count, np.int64)
        for index, (sizes, generator) in enumerate(zip(self._sizes, self._generators, strict=True)):
            own = session == index
            items[own] = sizes.sample(generator, int(own.sum()))
        until = chunk.until if self._left else math.inf
        return Chunk(chunk.time[:count], session, chunk.source[:count], until, items)

    def last_arrival(self) -> float:
        """Return when the last query comes, s; this takes all chunks."""
        last = 0.0
        while True:
            chunk = self.next_chunk()
            last = float(chunk.time[-1]) if chunk.time.size else last
            if chunk.until == math.inf:
                return last


class AtOnce:
    """All queries at time 0, for the oracle, which lets them come when it wants; the smallest first.

    Args:
        shares: Of each session among the queries.
        sizes: How large they are.
        count: Of all sessions together.
        seed: Of everything random.
    """

    def __init__(
        self, shares: np.ndarray, sizes: Sequence[SizeDistribution], *, count: int, seed: int
    ) -> None:
        counts = np.random.default_rng((seed, SHARES)).multinomial(count, shares / shares.sum())
        drawn = [
            np.sort(one.sample(np.random.default_rng((seed, SIZES, index)), own))
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
