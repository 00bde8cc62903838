"""The compiled kernels of RRL against their plain twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents import naive
from tuner.agents.rrl.region import boltzmann, region_update


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32 - 1))
def test_region_update_equals_naive(seed: int) -> None:
    """Equation 2 on random tables, regions and rates; everything outside the region stays."""
    generator = np.random.default_rng(seed)
    size = int(generator.integers(1, 60))
    q = generator.uniform(0, 30, size)
    region = generator.permutation(size)[: generator.integers(1, size + 1)]
    estimates, rates = generator.uniform(0, 30, region.size), generator.uniform(0, 1, region.size)
    expected = naive.region_update(q.tolist(), region.tolist(), estimates.tolist(), rates.tolist(), 0.7)

    region_update(q, region, estimates, rates, 0.7)

    assert q == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32 - 1))
def test_boltzmann_equals_naive(seed: int) -> None:
    """Equation 3 on random costs."""
    generator = np.random.default_rng(seed)
    values = generator.uniform(0, 5, generator.integers(1, 40))
    beta = float(generator.uniform(0, 20))
    probabilities = np.empty(values.size)

    boltzmann(values, beta, probabilities)

    assert probabilities == pytest.approx(naive.boltzmann(values.tolist(), beta))


def test_boltzmann_is_stable() -> None:
    """Costs that would overflow the exponential give a distribution all the same."""
    probabilities = np.empty(3)

    boltzmann(np.array([1e6, 1e6, 2e6]), 100.0, probabilities)

    assert probabilities.tolist() == [0.5, 0.5, 0.0]


def test_beta_zero_explores_uniformly() -> None:
    """Section 4.2.2: a very small beta explores the space randomly."""
    probabilities = np.empty(4)

    boltzmann(np.array([0.1, 5.0, 30.0, 1.0]), 0.0, probabilities)

    assert probabilities.tolist() == [0.25] * 4
