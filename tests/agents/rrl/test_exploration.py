"""Probabilities from costs: the kernel, and the temperatures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents import naive
from tuner.agents.rrl.boltzmann import boltzmann
from tuner.agents.rrl.exploration import inverse_logits


def test_logits_of_the_authors_code() -> None:
    """20e6 over microseconds: 300 ms gives 66.7."""
    assert inverse_logits(np.array([0.3, 0.5])) == pytest.approx([66.667, 40.0], rel=1e-4)


def test_large_logits_are_halved_together() -> None:
    """1 ms would give 20,000; six halvings bring it to 312.5, and the other along."""
    assert inverse_logits(np.array([0.001, 0.002])) == pytest.approx([312.5, 156.25])


def test_logits_of_exactly_the_limit_stay() -> None:
    """Halving stops at 500."""
    assert inverse_logits(np.array([0.04])).tolist() == [500.0]


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
