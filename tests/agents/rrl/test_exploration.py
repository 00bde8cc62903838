"""Probabilities from costs, by their temperature."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents import naive
from tuner.agents.rrl.exploration import inverse_logits, probabilities
from tuner.agents.rrl.parameters import FormParameters


def test_logits_of_the_authors_code() -> None:
    """20e6 over microseconds: 300 ms gives 66.7."""
    assert inverse_logits(np.array([0.3, 0.5])) == pytest.approx([66.667, 40.0], rel=1e-4)


def test_large_logits_are_halved_together() -> None:
    """1 ms would give 20,000; six halvings bring it to 312.5, and the other along."""
    assert inverse_logits(np.array([0.001, 0.002])) == pytest.approx([312.5, 156.25])


def test_logits_of_exactly_the_limit_stay() -> None:
    """Halving stops at 500."""
    assert inverse_logits(np.array([0.04])).tolist() == [500.0]


def chosen(values: list[float], beta: float) -> np.ndarray:
    """Probabilities by eq. 3 with a constant beta."""
    constant = FormParameters(temperature="absolute", beta_first=beta, beta_last=beta)
    return probabilities(np.array(values), constant, windows=1, scale=7.0)


def test_a_relative_temperature_refers_to_the_scale() -> None:
    """Costs that are three times as high, on three times the scale, are chosen as often."""
    relative = FormParameters(temperature="relative", beta_first=4.0, beta_last=4.0)

    found = probabilities(np.array([3.0, 6.0]), relative, windows=1, scale=3.0)

    assert found == pytest.approx(naive.boltzmann([1.0, 2.0], 4.0))


def test_the_authors_temperature_is_of_latencies() -> None:
    """A cost of 1 is one unit: 0.3 s and 0.5 s differ by 26.7 in their code's logits."""
    inverse = FormParameters(temperature="inverse", unit=0.1)

    found = probabilities(np.array([3.0, 5.0]), inverse, windows=1, scale=1.0)

    assert np.log(found[0] / found[1]) == pytest.approx(20e6 * (1 / 300e3 - 1 / 500e3))


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32 - 1))
def test_probabilities_equal_naive(seed: int) -> None:
    """Equation 3 on random costs."""
    generator = np.random.default_rng(seed)
    values = generator.uniform(0, 5, generator.integers(1, 40)).tolist()
    beta = float(generator.uniform(0, 20))

    assert chosen(values, beta) == pytest.approx(naive.boltzmann(values, beta))


def test_probabilities_are_stable() -> None:
    """Costs that would overflow the exponential give a distribution all the same."""
    assert chosen([1e6, 1e6, 2e6], 100.0).tolist() == [0.5, 0.5, 0.0]


def test_beta_zero_explores_uniformly() -> None:
    """Section 4.2.2: a very small beta explores the space randomly."""
    assert chosen([0.1, 5.0, 30.0, 1.0], 0.0).tolist() == [0.25] * 4


@pytest.mark.parametrize(
    "parameters",
    [
        FormParameters(beta_first=0.0),
        FormParameters(temperature="absolute"),
        FormParameters(temperature="inverse", unit=20.0),
    ],
)
def test_what_must_not_be_tried_is_never_chosen(parameters: FormParameters) -> None:
    """Whatever the temperature: not even where all others are equally likely."""
    chances = probabilities(np.array([np.inf, 1.0, 1.0, np.inf]), parameters, windows=1, scale=1.0)

    assert chances.tolist() == [0.0, 0.5, 0.5, 0.0]
