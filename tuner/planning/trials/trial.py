"""Simulates candidate pools, most promising first, and says which serves most.

Kairos+ (section 5.2, algorithm 1) tries pools from the highest bound down, and stops where no bound is above
the best throughput. Here a trial costs milliseconds, not money, but its result has an error. So there are two
rounds: many pools are tried with few requests, where most need a single simulation to be known as worse; then
the best few with many other requests. The best pool of every type alone is in both rounds, so that the choice
serves no less than any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tuner.planning.trials.candidate import Candidates

__all__ = ["Evaluate", "Trials", "run_trials"]

FIRST, LAST = 1_000, 10_000
"""Requests of a simulation in the two rounds."""
TRIED = 150
"""Pools in the first round, at most."""
FINAL = 8
"""Pools in the second."""
CLOSE = 0.97
"""Share of the best that a pool of the first round must serve to be of interest."""
SLACK = 1.02
"""The error of the rough ceilings, as a factor."""

Evaluate = Callable[[tuple[int, ...], int, float], float]
"""Simulates a pool with a number of requests and returns its goodput, requests/s; 0 if it is below the last
argument."""


class Trials(NamedTuple):
    """What was simulated."""

    tried: int
    """Pools in the first round."""
    finalists: dict[tuple[int, ...], float]
    """Goodput of the pools in the second round, requests/s, the best first; 0 if it is below the best."""


def run_trials(candidates: Candidates, evaluate: Evaluate) -> Trials:
    """Simulate the candidates in two rounds."""
    pools = [tuple(pool) for pool in candidates.pools.tolist()]
    alone = np.flatnonzero(candidates.homogeneous).tolist()
    order = [*alone, *(index for index in range(len(pools)) if index not in set(alone))][:TRIED]
    rates: dict[int, float] = {}
    best = 0.0
    for index in order:
        if candidates.ceiling[index] * SLACK > best:
            rates[index] = evaluate(pools[index], FIRST, CLOSE * best)
            best = max(best, rates[index])
    by_rate = sorted(rates, key=lambda index: -rates[index])
    homogeneous = max(alone, key=lambda index: rates.get(index, 0.0), default=None)
    chosen = by_rate[:FINAL]
    if homogeneous is not None and homogeneous not in chosen:
        chosen.append(homogeneous)
    final: dict[tuple[int, ...], float] = {}
    best = 0.0
    for index in chosen:
        final[pools[index]] = evaluate(pools[index], LAST, 0.0 if index == homogeneous else best)
        best = max(best, final[pools[index]])
    return Trials(len(rates), dict(sorted(final.items(), key=lambda pair: -pair[1])))
