"""The choice of a pool from bounds alone."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.planning.pools.choice import best_homogeneous, choose

BASE = np.array([True, False])


def test_agreeing_base_instances_take_the_highest_bound() -> None:
    """The three highest have two base instances each."""
    pools = np.array([[2, 9], [2, 0], [2, 5], [1, 5]])

    choice = choose(pools, np.arange(4), BASE)

    assert choice.agreed
    assert choice.pool == 0


def test_otherwise_the_one_nearest_to_the_others_is_taken() -> None:
    """Squared distances by hand: 17 and 26 from the first, 1 between the others."""
    pools = np.array([[1, 1], [2, 5], [2, 6]])

    choice = choose(pools, np.arange(3), BASE)

    assert not choice.agreed
    assert not choice.alone
    assert choice.distance.tolist() == [17 + 26, 17 + 1, 26 + 1]
    assert choice.pool == 1


@pytest.mark.parametrize("third", [[1, 2], [3, 2]])
def test_the_third_highest_must_agree_too(third: list[int]) -> None:
    """ "If the top-3 upper bounds have the same base instances" (section 5.2): two are not enough."""
    pools = np.array([[2, 1], [2, 3], third, [2, 3]])

    choice = choose(pools, np.arange(4), BASE)

    assert not choice.agreed
    assert choice.pool == 1


def test_of_several_base_types_the_same_number_of_each_is_needed_to_agree() -> None:
    """Two instances are two, but not of the same type."""
    pools = np.array([[2, 0, 5], [0, 2, 5], [1, 1, 5]])

    choice = choose(pools, np.arange(3), np.array([True, True, False]))

    assert not choice.agreed
    assert choice.pool == 2


def test_base_instances_alone_need_no_hedging() -> None:
    """The highest bound is taken if its pool has no auxiliary instances, whatever the others have."""
    pools = np.array([[3, 0], [1, 4], [1, 5], [2, 4]])

    choice = choose(pools, np.arange(4), BASE)

    assert (choice.pool, choice.agreed, choice.alone) == (0, False, True)


def test_only_the_ten_highest_are_candidates() -> None:
    """Pools behind them have no say, however many they are."""
    near = [[1 + n % 2, n] for n in range(10)]
    far = [[9, 90]] * 50
    order = np.arange(60)

    with_far = choose(np.array(near + far), order, BASE)
    without = choose(np.array(near), order[:10], BASE)

    assert without.distance.size == 10
    assert with_far.pool == without.pool
    assert with_far.distance.tolist() == without.distance.tolist()


def test_the_order_of_bounds_is_followed() -> None:
    """The index is into the pools, not into the order."""
    pools = np.array([[1, 1], [2, 2], [2, 3], [2, 4]])

    assert choose(pools, np.array([3, 2, 1, 0]), BASE).pool == 3


def test_one_pool_is_chosen() -> None:
    """There is nothing to compare."""
    assert choose(np.array([[1, 0]]), np.array([0]), BASE).pool == 0


def test_the_homogeneous_pool_is_scaled_to_the_whole_budget() -> None:
    """Four instances for 2.104 $/h, scaled to 2.5 $/h (section 8.1)."""
    found = best_homogeneous(np.array([0.526, 0.1]), np.array([5, 9]), np.array([10.0, 0.0]), 2.5)

    assert (found.kind, found.instances, found.rate) == (0, 4, 40.0)
    assert found.scaled_rate == pytest.approx(40 * 2.5 / 2.104)


def test_the_homogeneous_pool_is_no_larger_than_what_is_offered() -> None:
    """Three instances for 0.3 $/h at 0.1 $/h each, whatever rounding does; two if no more can be rented."""
    one = np.array([0.1]), np.array([10.0]), 0.1 * 3 - 1e-16

    assert [best_homogeneous(one[0], np.array([most]), one[1], one[2]).instances for most in (9, 2)] == [3, 2]


def test_a_type_of_which_there_are_no_more_is_not_scaled_up() -> None:
    """One instance for 0.1 $/h is not the best pool for 10 $/h, however much a hundred would serve."""
    price, rate = np.array([0.1, 1.0]), np.array([10.0, 50.0])

    found = best_homogeneous(price, np.array([1, 9]), rate, 10.0)

    assert (found.kind, found.instances, found.rate, found.scaled_rate) == (1, 9, 450.0, 450.0)


def test_of_several_base_types_the_one_with_most_throughput_for_the_money_is_taken() -> None:
    """20/s for 0.8 $/h are better than 10/s for 0.5 $/h; what the budget cannot buy is not."""
    price, rate = np.array([0.5, 0.8, 3.0]), np.array([10.0, 20.0, 900.0])

    assert best_homogeneous(price, np.array([9, 9, 9]), rate, 2.5).kind == 1
