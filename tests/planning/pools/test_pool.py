"""All pools within a budget, and their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planning.pools import naive
from tuner.errors import InvalidInput
from tuner.planning.pools.pool import pools_within, ranked

PRICE = np.array([0.526, 0.432, 0.149, 0.1664])
MOST = np.array([5, 6, 17, 15])


def test_the_papers_budget_buys_331_pools() -> None:
    """Those with a GPU; 366 others keep within the budget, too, but cannot serve the largest requests."""
    with_base = pools_within(PRICE, MOST, np.array([True, False, False, False]), 2.5)
    everything = pools_within(PRICE, MOST, np.ones(4, dtype=bool), 2.5)

    assert (len(with_base), len(everything)) == (331, 696)


@given(
    st.lists(
        st.tuples(st.integers(1, 30).map(lambda cents: cents / 10), st.integers(1, 4), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 60).map(lambda cents: cents / 10),
)
def test_they_are_those_that_one_finds_by_trying(types: list[tuple[float, int, bool]], budget: float) -> None:
    """Every combination within counts and budget that has a base instance, in lexicographic order."""
    price, most, base = (np.array(column) for column in zip(*types, strict=True))

    found = pools_within(price, most, base, budget)

    assert [tuple(pool) for pool in found.tolist()] == naive.pools_within(price, most, base, budget)


def test_rounding_does_not_hide_a_pool() -> None:
    """Three instances of 0.1 $/h are within 0.3 $/h."""
    pools = pools_within(np.array([0.1]), np.array([9]), np.array([True]), 0.3)

    assert pools.ravel().tolist() == [1, 2, 3]


def test_too_many_pools_are_refused_before_memory_is_taken() -> None:
    """With the setting to change."""
    with pytest.raises(InvalidInput, match="budget"):
        pools_within(np.full(9, 0.01), np.full(9, 100), np.ones(9, dtype=bool), 100.0)


def test_the_highest_bound_comes_first_and_of_equals_the_cheaper() -> None:
    """Rounding errors make no difference between equal bounds."""
    bound = np.array([1.0, 3.0, 3.0 + 1e-14, 2.0])

    assert ranked(bound, np.array([1.0, 1.5, 2.0, 0.1])).tolist() == [1, 2, 3, 0]
