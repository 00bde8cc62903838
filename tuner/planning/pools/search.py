"""Kairos+: finds the best pool with few evaluations, guided by the upper bounds (section 5.2, algorithm 1).

Pools are evaluated from the highest bound down. Two things are pruned: after a better pool was found, all
whose bound is not above its throughput; after any evaluation, all sub-configurations of the pool (no more
instances of any type), which cannot be better. What is left in the end is the best, if bounds are true and
throughput never falls with more instances.

Where we go further: an evaluation may be limited in number, as each costs money where pools are real.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["Evaluate", "Evaluation", "Progress", "SearchResult", "kairos_plus"]

Evaluate = Callable[[tuple[int, ...]], float]
"""Returns the goodput of a pool, requests/s."""


class Evaluation(NamedTuple):
    """A pool that was tried."""

    pool: tuple[int, ...]
    rate: float  # requests/s


class SearchResult(NamedTuple):
    """What a search found, and what it cost."""

    pool: tuple[int, ...] | None  # None if every pool tried serves nothing
    rate: float  # requests/s
    evaluations: tuple[Evaluation, ...]
    pools: int  # that there were
    pruned_by_bound: int
    pruned_as_part: int  # as a sub-configuration
    complete: bool  # every pool was tried or pruned

    @property
    def share(self) -> float:
        """The part of the search space that was tried."""
        return len(self.evaluations) / self.pools


class Progress:
    """The state of any search over pools: which are still open, and the best so far.

    It begins with all pools open. Each :meth:`evaluate` closes the pool and its sub-configurations;
    :meth:`prune_bounds` closes what cannot be better. :meth:`found` sums up at any time.

    Args:
        pools: Instances of each type.   # (n, T)
        evaluate: Asked for each pool at most once.
    """

    def __init__(self, pools: np.ndarray, evaluate: Evaluate) -> None:
        self.pools = pools
        self.open = np.ones(len(pools), dtype=bool)  # (n,)
        self.best: tuple[int, ...] | None = None
        self.rate = 0.0
        self._evaluate = evaluate
        self._evaluations: list[Evaluation] = []
        self._pruned_by_bound = 0
        self._pruned_as_part = 0

    @property
    def count(self) -> int:
        """How many pools were tried."""
        return len(self._evaluations)

    @property
    def last(self) -> Evaluation:
        """The latest evaluation."""
        return self._evaluations[-1]

    def evaluate(self, index: int) -> bool:
        """Try a pool that is open, and return whether it is the best so far."""
        if not self.open[index]:
            raise ValueError(f"pool {index} was tried or pruned before")
        pool = tuple(int(count) for count in self.pools[index])
        rate = float(self._evaluate(pool))
        self._evaluations.append(Evaluation(pool, rate))
        part = self.open & (self.pools <= self.pools[index]).all(axis=1)
        self._pruned_as_part += int(part.sum()) - 1  # the pool itself was tried
        self.open &= ~part
        if rate <= self.rate:
            return False
        self.best, self.rate = pool, rate
        return True

    def prune_bounds(self, bound: np.ndarray) -> None:
        """Close the pools whose bound is not above the best throughput.   # bound: (n,) requests/s."""
        closed = self.open & (bound <= self.rate)
        self._pruned_by_bound += int(closed.sum())
        self.open &= ~closed

    def found(self) -> SearchResult:
        """Return what was found so far."""
        return SearchResult(
            pool=self.best,
            rate=self.rate,
            evaluations=tuple(self._evaluations),
            pools=len(self.pools),
            pruned_by_bound=self._pruned_by_bound,
            pruned_as_part=self._pruned_as_part,
            complete=not self.open.any(),
        )


def kairos_plus(
    pools: np.ndarray, bound: np.ndarray, order: np.ndarray, evaluate: Evaluate, limit: int | None = None
) -> SearchResult:
    """Search the best pool (algorithm 1).

    Args:
        pools: Instances of each type.   # (n, T)
        bound: Upper bound of the throughput of each.   # (n,) requests/s
        order: Indices of the pools, highest bound first.   # (n,)
        evaluate: Returns the throughput of a pool; asked for each at most once.
        limit: Most evaluations; None for as many as it takes.
    """
    progress = Progress(pools, evaluate)
    for index in order.tolist():  # Alg. 1: foreach UB(x) in UBs
        if limit is not None and progress.count >= limit:
            break
        if progress.open[index] and progress.evaluate(index):
            progress.prune_bounds(bound)  # Alg. 1: filter all c with UB(c) <= curr_best
    return progress.found()
