"""The searches that Kairos+ is compared with (Fig. 11): random, annealing, genetic, and Bayesian (Ribbon).

None of them knows the bounds. Like in the paper each is given Kairos+'s pruning of sub-configurations. So the
candidates are a known list that shrinks with every evaluation, and each step evaluates one that is still
open: where a method would go to a point that is not, it goes to the nearest that is. Optimisers from
libraries propose points of a box instead, of which most would be outside the budget or closed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

import numpy as np

from tuner.planning.pools.gaussian import expected_improvement
from tuner.planning.pools.search import Evaluate, Progress, SearchResult

__all__ = ["RIVALS", "Rival", "annealing_search", "bayesian_search", "genetic_search", "random_search"]

HOTTEST = 0.2
"""First temperature, relative to the best throughput so far."""
COOLING = 0.95
"""Of the temperature, with each evaluation."""
POPULATION = 10
"""Pools that may become parents."""
FIRST = 5
"""Random pools before the first model."""


@dataclass(kw_only=True)
class _Walk:
    """What every search needs: the candidates, the randomness, and when to stop."""

    progress: Progress
    generator: np.random.Generator
    limit: int

    @property
    def goes_on(self) -> bool:
        return bool(self.progress.open.any()) and self.progress.count < self.limit

    def anywhere(self) -> int:
        """Return an open pool, each as likely."""
        return int(self.generator.choice(np.flatnonzero(self.progress.open)))

    def near(self, point: np.ndarray) -> int:
        """Return an open pool nearest to a point; of equally near ones any.   # point: (T,)."""
        candidates = np.flatnonzero(self.progress.open)
        distance = ((self.progress.pools[candidates] - point) ** 2).sum(axis=1)
        return int(self.generator.choice(candidates[distance == distance.min()]))

    def rate(self, index: int) -> float:
        """Evaluate an open pool and return its throughput."""
        self.progress.evaluate(index)
        return self.progress.last.rate


Rival = Callable[[np.ndarray, Evaluate, np.random.Generator, int | None], SearchResult]


def _search(method: Callable[[_Walk], None]) -> Rival:
    """Return a method as a search over pools.

    The search takes the instances of each type in each pool, (n, T); a function that returns the throughput
    of a pool, and is called at most once for each; the generator of everything random; and how many pools may
    be evaluated, None for all.
    """

    @wraps(method)
    def search(
        pools: np.ndarray, evaluate: Evaluate, generator: np.random.Generator, limit: int | None
    ) -> SearchResult:
        most = len(pools) if limit is None else limit
        walk = _Walk(progress=Progress(pools, evaluate), generator=generator, limit=most)
        method(walk)
        return walk.progress.found()

    return search


@_search
def random_search(walk: _Walk) -> None:
    """Try open pools in random order."""
    while walk.goes_on:
        walk.rate(walk.anywhere())


@_search
def annealing_search(walk: _Walk) -> None:
    """Walk to neighbours; a worse one is accepted with a probability that falls as the walk cools.

    A neighbour has one instance more, less, or of another type.
    """
    pools, generator = walk.progress.pools, walk.generator
    here, rate, heat = pools[0], -math.inf, HOTTEST
    if walk.goes_on:
        first = walk.anywhere()
        here, rate = pools[first], walk.rate(first)
    while walk.goes_on:
        there = walk.near(_step(here, generator))
        found = walk.rate(there)
        scale = heat * max(walk.progress.rate, 1e-12)
        if found >= rate or generator.random() < math.exp((found - rate) / scale):
            here, rate = pools[there], found
        heat *= COOLING


def _step(pool: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return a pool with one instance more, less, or of another type.   # (T,)."""
    point = pool.astype(np.int64)
    more, less = generator.integers(-1, point.size, size=2)  # -1: none
    if more >= 0:
        point[more] += 1
    if less >= 0:
        point[less] -= 1
    return point


@_search
def genetic_search(walk: _Walk) -> None:
    """Breed pools: of two good ones each type's count comes from either, and some change by one.

    The child takes the place of the worst of the population.
    """
    pools, generator = walk.progress.pools, walk.generator
    population: list[tuple[float, int]] = []  # throughput and index
    while walk.goes_on:
        if len(population) < POPULATION:
            index = walk.anywhere()
        else:
            mother, father = (_fitter(population, generator) for _ in range(2))
            child = np.where(generator.random(pools.shape[1]) < 0.5, pools[mother], pools[father])
            changed = generator.random(child.size) < 1 / child.size
            index = walk.near(child + np.where(changed, generator.choice([-1, 1], child.size), 0))
        population.append((walk.rate(index), index))
        population = sorted(population, reverse=True)[:POPULATION]


def _fitter(population: list[tuple[float, int]], generator: np.random.Generator) -> int:
    """Return the better of two of the population."""
    one, other = generator.choice(len(population), size=2, replace=False).tolist()
    return int(max(population[one], population[other])[1])


@_search
def bayesian_search(walk: _Walk) -> None:
    """Try the open pool of the highest expected improvement under a Gaussian process, as Ribbon does."""
    pools = walk.progress.pools
    scaled = pools / np.maximum(pools.max(axis=0), 1)  # (n, T)
    tried: list[int] = []
    rates: list[float] = []
    while walk.goes_on:
        index = walk.anywhere()
        if len(tried) >= FIRST:
            candidates = np.flatnonzero(walk.progress.open)
            gain = expected_improvement(scaled[tried], np.array(rates), scaled[candidates])
            index = int(candidates[gain.argmax()])
        tried.append(index)
        rates.append(walk.rate(index))


RIVALS: dict[str, Rival] = {
    "random": random_search,
    "annealing": annealing_search,
    "genetic": genetic_search,
    "bayesian": bayesian_search,
}
"""By name."""
