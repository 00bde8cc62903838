"""Kairos+: the best pool with few evaluations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.planning.pools.pool import ranked
from tuner.planning.pools.search import Progress, kairos_plus


@st.composite
def spaces(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pools of two types, a throughput that never falls with more instances, and bounds above it."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pools = np.array([(a, b) for a in range(1, 5) for b in range(6)])
    weights = generator.random(2) + 0.01
    rate = np.minimum(pools @ weights, generator.random() * 5 + 0.1)
    bound = rate * (1 + generator.random(len(pools)))
    return pools, rate, bound


@given(spaces())
def test_the_best_pool_is_found_with_each_asked_at_most_once(
    space: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """If bounds are true and more instances never serve less."""
    pools, rate, bound = space
    asked: list[tuple[int, ...]] = []

    def evaluate(pool: tuple[int, ...]) -> float:
        asked.append(pool)
        return rate[(pools == pool).all(axis=1)][0]  # type: ignore[no-any-return]

    found = kairos_plus(pools, bound, ranked(bound, np.zeros(len(pools))), evaluate)

    assert found.complete
    assert found.rate == pytest.approx(rate.max())
    assert len(asked) == len(set(asked)) == len(found.evaluations)
    assert found.pruned_by_bound + found.pruned_as_part + len(asked) == len(pools)
    assert found.share == len(asked) / len(pools)


def test_both_prunings_by_hand() -> None:
    """(2,2) closes its sub-configurations; its 10/s close (3,0), whose bound is 9; (1,3) is still tried."""
    pools = np.array([(2, 2), (1, 2), (2, 1), (3, 0), (1, 3)])
    bound = np.array([20.0, 19.0, 18.0, 9.0, 15.0])
    rates = {(2, 2): 10.0, (1, 3): 8.0}

    found = kairos_plus(pools, bound, np.array([0, 1, 2, 4, 3]), rates.__getitem__)  # type: ignore[arg-type]

    assert found.evaluations == (((2, 2), 10.0), ((1, 3), 8.0))
    assert (found.pool, found.rate) == ((2, 2), 10.0)
    assert (found.pruned_by_bound, found.pruned_as_part) == (1, 2)


def test_tight_bounds_need_one_evaluation() -> None:
    """All others are pruned after it."""
    pools = np.array([(1, a) for a in range(50)])
    rate = pools.sum(axis=1).astype(float)

    found = kairos_plus(pools, rate, ranked(rate, rate), lambda pool: float(sum(pool)))

    assert len(found.evaluations) == 1
    assert found.complete


def test_a_pool_that_can_only_be_as_good_is_not_tried() -> None:
    """ "Filter all c with UB(c) <= curr_best" (algorithm 1), those of an equal bound, too."""
    pools = np.array([(2, 1), (1, 2)])

    found = kairos_plus(pools, np.array([9.0, 8.0]), np.arange(2), lambda _: 8.0)

    assert (len(found.evaluations), found.pruned_by_bound, found.complete) == (1, 1, True)


def test_a_limit_ends_it_early_and_says_so() -> None:
    """The best so far is kept."""
    pools = np.array([(1, 3), (2, 2), (3, 1)])

    found = kairos_plus(pools, np.full(3, 9.0), np.arange(3), lambda pool: float(pool[0]), limit=2)

    assert not found.complete
    assert found.pool == (2, 2)


def test_pools_that_serve_nothing_are_no_find() -> None:
    """Nothing is better than the throughput 0."""
    found = kairos_plus(np.array([(1,), (2,)]), np.ones(2), np.array([1, 0]), lambda _: 0.0)

    assert found.pool is None
    assert found.complete


def test_a_closed_pool_is_not_tried() -> None:
    """That would be a mistake of the search."""
    progress = Progress(np.array([(1,), (2,)]), lambda _: 1.0)
    progress.evaluate(1)

    with pytest.raises(ValueError, match="pool 0"):
        progress.evaluate(0)
