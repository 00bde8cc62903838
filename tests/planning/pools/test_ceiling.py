"""The throughput that no distribution policy exceeds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning.pools import naive
from tuner.planning.pools.ceiling import ceilings

SIZES = 8


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_no_way_to_share_out_queries_exceeds_it(seed: int) -> None:
    """Random shares of each size to the types that meet the SLO; instances are at most always busy."""
    generator = np.random.default_rng(seed)
    latency = np.cumsum(generator.random((3, SIZES + 1)) + 0.01, axis=1)
    probability = np.concatenate(([0], generator.dirichlet(np.ones(SIZES))))
    slo = latency[0, -1]
    pool = generator.integers(1, 5, size=3)
    shares = generator.dirichlet(np.full(3, 0.2), size=SIZES + 1).T * (latency <= slo)
    shares = (shares / shares.sum(axis=0)).tolist()

    limit = ceilings(pool[None], latency, slo, probability)[0]

    reached = naive.throughput(pool, latency, slo, range(SIZES + 1), probability, shares)
    assert reached <= limit * (1 + 1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_with_two_types_it_is_reached(seed: int) -> None:
    """Sizes sorted by how much the second type is at a disadvantage, and cut at the best place."""
    generator = np.random.default_rng(seed)
    latency = np.cumsum(generator.random((2, SIZES + 1)) + 0.01, axis=1)
    probability = np.concatenate(([0], generator.dirichlet(np.ones(SIZES))))
    slo = latency[0, -1]
    pool = generator.integers(1, 5, size=2)

    limit = ceilings(pool[None], latency, slo, probability)[0]

    usable = [size for size in range(1, SIZES + 1) if latency[1, size] <= slo]
    usable.sort(key=lambda size: latency[1, size] / latency[0, size])
    best = 0.0
    for part in range(len(usable) + 1):
        for fraction in np.linspace(0, 1, 51):
            shares = np.zeros((2, SIZES + 1))
            shares[1, usable[:part]] = 1
            if part < len(usable):
                shares[1, usable[part]] = fraction
            shares[0] = 1 - shares[1]
            sizes = range(SIZES + 1)
            best = max(best, naive.throughput(pool, latency, slo, sizes, probability, shares.tolist()))
    assert limit == pytest.approx(best, rel=0.02)


def test_one_type_serves_its_mean_rate() -> None:
    """Two instances at 1.5 s on average."""
    limit = ceilings(np.array([[2]]), np.array([[0, 1.0, 2.0]]), 2.0, np.array([0, 0.5, 0.5]))

    assert limit == pytest.approx([2 / 1.5])


def test_a_pool_that_cannot_meet_the_slo_serves_nothing() -> None:
    """Its largest requests have nowhere to go."""
    latency, probability = np.array([[0, 1.0, 2.0], [0, 1.0, 1.0]]), np.array([0, 0.5, 0.5])

    assert ceilings(np.array([[3, 0], [3, 1]]), latency, 1.5, probability)[0] == 0


def test_a_quantile_spares_the_largest_queries() -> None:
    """With the upper half spared, one second of work is left for every second request."""
    latency, probability = np.array([[0, 1.0, 2.0]]), np.array([0, 0.5, 0.5])

    assert ceilings(np.array([[1]]), latency, 1.0, probability, quantile=0.5) == pytest.approx([2.0])
