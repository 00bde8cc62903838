"""The searches without bounds, and the Gaussian process of one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tuner.planning.pools.gaussian import expected_improvement
from tuner.planning.pools.rivals import RIVALS, Rival

POOLS = np.array([(a, b) for a in range(1, 6) for b in range(10)])
PEAK = (3, 6)


def hill(pool: tuple[int, ...]) -> float:
    """Throughput that falls with the distance to the peak; not monotone, so that a search has to look."""
    return 100.0 / (1 + (pool[0] - PEAK[0]) ** 2 + 0.3 * (pool[1] - PEAK[1]) ** 2)


def rising(pool: tuple[int, ...]) -> float:
    return float(pool[0] + 0.3 * pool[1])


@pytest.mark.parametrize("name", RIVALS)
def test_a_search_ends_with_the_best_if_more_instances_never_serve_less(name: str) -> None:
    """Every pool is tried once or pruned as a sub-configuration."""
    asked: list[tuple[int, ...]] = []

    def evaluate(pool: tuple[int, ...]) -> float:
        asked.append(pool)
        return rising(pool)

    found = RIVALS[name](POOLS, evaluate, np.random.default_rng(1), None)

    assert found.complete
    assert found.pool == (5, 9)
    assert len(asked) == len(set(asked)) == len(found.evaluations)
    assert found.pruned_as_part + len(asked) == len(POOLS)
    assert found.pruned_by_bound == 0


@pytest.mark.parametrize("name", RIVALS)
def test_a_limit_is_kept_and_the_seed_decides(name: str) -> None:
    """Same seed, same pools in the same order."""
    first = RIVALS[name](POOLS, hill, np.random.default_rng(2), 4)
    again = RIVALS[name](POOLS, hill, np.random.default_rng(2), 4)

    assert first == again
    assert len(first.evaluations) <= 4
    assert first.rate == max(rate for _, rate in first.evaluations)


@pytest.mark.parametrize("name", ["annealing", "genetic", "bayesian"])
def test_searches_that_learn_find_the_peak_sooner(name: str) -> None:
    """With three quarters of the evaluations of a random order, on average over twenty seeds."""
    flat = np.array([(a, 40 - a) for a in range(41)])  # no pool is part of another
    rates = [100.0 / (1 + abs(a - 20)) for a in range(41)]

    def evaluations(search: Rival) -> np.floating[Any]:
        runs = [search(flat, lambda p: rates[p[0]], np.random.default_rng(seed), None) for seed in range(20)]
        return np.mean([[rate for _, rate in run.evaluations].index(run.rate) + 1 for run in runs])

    assert evaluations(RIVALS[name]) < 0.75 * evaluations(RIVALS["random"])


def test_a_limit_of_none_evaluated_finds_nothing() -> None:
    """Also the walk that needs a first pool."""
    assert all(search(POOLS, hill, np.random.default_rng(1), 0).pool is None for search in RIVALS.values())


def test_expected_improvement_is_small_where_values_are_known() -> None:
    """And larger at a distance, above all beside the best."""
    points, values = np.array([[0.0], [0.3], [1.0]]), np.array([0.0, 3.0, 0.5])

    gain = expected_improvement(points, values, np.array([[0.3], [0.4], [0.0], [0.99]]))

    assert gain.argmax() == 1
    assert gain[0] < 0.01
    assert gain[2] < 0.01


def test_equal_values_can_be_modelled() -> None:
    """Their deviation is 0."""
    gain = expected_improvement(np.array([[0.0], [1.0]]), np.ones(2), np.array([[0.5]]))

    assert np.isfinite(gain).all()
