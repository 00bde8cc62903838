"""The upper bound of throughput: eq. 15 and its special cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.planning.pools import naive
from tuner.planning.pools.bound import CHUNK, auxiliary_limited, bounds, make_terms

SIZES = 12


def tables(types: int) -> st.SearchStrategy[np.ndarray]:
    """Latency tables that never fall, s."""
    steps = st.lists(st.floats(0.001, 1), min_size=SIZES + 1, max_size=SIZES + 1)
    return st.lists(steps.map(np.cumsum), min_size=types, max_size=types).map(np.array)


QUERIES = st.lists(st.integers(1, SIZES), min_size=2, max_size=30)
COUNT = st.integers(1, 9)


def probability(requests: list[int]) -> np.ndarray:
    return np.bincount(requests, minlength=SIZES + 1) / len(requests)


def one_of_each(latency: np.ndarray, requests: list[int]) -> float:
    """The SLO that only the first type meets at the largest size, or no example."""
    latency[0] = np.minimum(latency[0], latency[1] * 0.99)  # the first is faster
    largest = max(requests)
    slo: float = (latency[0, largest] + latency[1, largest]) / 2
    assume((latency[1, min(requests)]) <= slo)
    return slo


@given(tables(2), QUERIES, COUNT, COUNT)
def test_one_auxiliary_type_gives_equations_9_and_11_to_13(
    latency: np.ndarray, requests: list[int], u: int, v: int
) -> None:
    """Eq. 15 reduces to eq. 9 and 11 for one instance of each, and to eq. 12 and 13 for several."""
    slo = one_of_each(latency, requests)
    base, large, small, share, _ = naive.rates(latency, slo, requests)
    terms = make_terms(latency, slo, probability(requests))

    single, several = bounds(np.array([[1, 1], [u, v]]), terms)

    if large <= (1 - share) / share * small:
        assert single == pytest.approx(naive.equation_9(large, share))
    else:
        assert single == pytest.approx(naive.equation_11(base, large, small, share))
    if u * large <= (1 - share) / share * v * small:
        assert several == pytest.approx(naive.equation_12(u, large, share))
    else:
        assert several == pytest.approx(naive.equation_13(u, v, base, large, small, share))


@given(tables(2), QUERIES)
def test_the_terms_are_those_of_the_text(latency: np.ndarray, requests: list[int]) -> None:
    """Q_b, Q_b^s+, Q_a, f and s equal sums over the single requests."""
    slo = one_of_each(latency, requests)
    terms = make_terms(latency, slo, probability(requests))
    base, large, small, share, cutoff = naive.rates(latency, slo, requests)

    assert terms.base.tolist() == [True, False]
    assert terms.base_rate == pytest.approx([base, 0])
    assert terms.large_rate[0, 1] == pytest.approx(large)
    assert terms.small_rate[1, 1] == pytest.approx(small)
    assert terms.share[1] == pytest.approx(share)
    served = [size for size in requests if size <= terms.cutoff[1]]
    assert max(served) == cutoff


@given(tables(1), QUERIES, COUNT)
def test_without_auxiliary_instances_the_bound_is_that_of_the_base(
    latency: np.ndarray, requests: list[int], u: int
) -> None:
    """u Q_b."""
    terms = make_terms(latency, latency[0, max(requests)], probability(requests))

    assert bounds(np.array([[u]]), terms)[0] == pytest.approx(u / (latency[0] @ probability(requests)))


@given(tables(3), QUERIES, COUNT, COUNT)
def test_two_equal_auxiliary_types_count_as_one(
    latency: np.ndarray, requests: list[int], v: int, w: int
) -> None:
    """Eq. 14 sums over types."""
    slo = one_of_each(latency, requests)
    latency[2] = latency[1]
    terms = make_terms(latency, slo, probability(requests))

    both, one = bounds(np.array([[2, v, w], [2, v + w, 0]]), terms)

    assert both == pytest.approx(one)


@given(tables(3), QUERIES, COUNT, COUNT)
def test_two_equal_base_types_count_as_one(latency: np.ndarray, requests: list[int], u: int, w: int) -> None:
    """The sums over several base types are those of one."""
    slo = one_of_each(latency, requests)
    latency[2] = latency[0]
    terms = make_terms(latency, slo, probability(requests))

    both, one = bounds(np.array([[u, 3, w], [u + w, 3, 0]]), terms)

    assert both == pytest.approx(one)


def test_weaker_auxiliary_types_are_credited_with_the_strongest_ones_cutoff() -> None:
    """f' = max f over the types in the pool, not over those in the catalogue (eq. 14)."""
    latency = np.array([[0, 1, 1, 1], [0, 1, 1, 9], [0, 1, 9, 9]], dtype=float)
    terms = make_terms(latency, slo=2, probability=np.array([0, 0.25, 0.25, 0.5]))

    assert terms.cutoff.tolist() == [3, 2, 1]
    assert terms.share.tolist() == [1, 0.5, 0.25]
    alone = 1 / 0.25 + (1 - 0.75 / 0.25 * 1 / 1 / 4) * 4  # v=1, Q_a=1, Q_b^s+=1, u=4
    assert bounds(np.array([[4, 0, 1]]), terms)[0] == pytest.approx(alone)
    small = 1 + 1 / 5  # Q_a of the weak type at the strong one's cut-off: mean of 1 s and 9 s
    together = small / 0.5 + (1 - small / 4) * 4
    assert bounds(np.array([[4, 1, 1]]), terms)[0] == pytest.approx(together)


def test_a_type_that_meets_the_slo_at_no_size_counts_for_nothing() -> None:
    """Its instances add nothing, with a useful type or without."""
    latency = np.array([[0, 1, 1], [0, 1, 5], [0, 5, 5]], dtype=float)
    terms = make_terms(latency, slo=2, probability=np.array([0, 0.5, 0.5]))

    found = bounds(np.array([[2, 1, 0], [2, 1, 3], [2, 0, 0], [2, 0, 3]]), terms)

    assert terms.cutoff.tolist() == [2, 1, 0]
    assert found[0] == found[1]
    assert found[2] == found[3]


def test_sizes_that_never_come_make_no_type_of_use() -> None:
    """It meets the SLO up to two items, but requests have four: its cut-off is 0."""
    latency = np.array([[0, 1, 1, 1, 1], [0, 1, 1, 5, 5]], dtype=float)
    terms = make_terms(latency, slo=2, probability=np.array([0, 0, 0, 0, 1.0]))

    assert terms.cutoff.tolist() == [4, 0]
    assert bounds(np.array([[2, 0], [2, 9]]), terms).tolist() == [2.0, 2.0]


def test_a_pool_without_a_base_instance_serves_nothing() -> None:
    """Its largest requests would be late."""
    latency = np.array([[0, 1, 1], [0, 1, 5]], dtype=float)
    terms = make_terms(latency, slo=2, probability=np.array([0, 0.5, 0.5]))

    assert bounds(np.array([[0, 3], [0, 0]]), terms).tolist() == [0, 0]


def test_the_bottleneck_is_told() -> None:
    """Few auxiliary instances are always busy, many wait for the base."""
    latency = np.array([[0, 1, 1], [0, 1, 5]], dtype=float)
    terms = make_terms(latency, slo=2, probability=np.array([0, 0.5, 0.5]))

    assert auxiliary_limited(np.array([[2, 1], [2, 9], [2, 0]]), terms).tolist() == [True, False, False]


@given(tables(3), QUERIES, st.integers(0, 2**32 - 1))
def test_more_instances_never_lower_the_bound(latency: np.ndarray, requests: list[int], seed: int) -> None:
    """As far as the cut-off stays: adding an instance of a type that the pool has."""
    slo = one_of_each(latency, requests)
    terms = make_terms(latency, slo, probability(requests))
    pool = np.random.default_rng(seed).integers(1, 6, size=3)

    found = bounds(pool + np.vstack([np.zeros(3, int), np.eye(3, dtype=int)]), terms)

    assert (found[1:] >= found[0] * (1 - 1e-12)).all()


def test_chunks_do_not_show() -> None:
    """A pool has the same bound wherever it stands in a long list."""
    latency = np.array([[0, 1, 1], [0, 1, 5]], dtype=float)
    terms = make_terms(latency, slo=2, probability=np.array([0, 0.5, 0.5]))
    pools = np.random.default_rng(4).integers(0, 9, size=(CHUNK + 10, 2))

    found = bounds(pools, terms)

    assert found.shape == (CHUNK + 10,)
    assert (found[-20:] == bounds(pools[-20:], terms)).all()
