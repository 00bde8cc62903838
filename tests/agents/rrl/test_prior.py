"""What a simulation says before anything was measured."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.agents.rrl.prior import make_prior


def test_loads_in_between_are_interpolated() -> None:
    """On the logarithms of load and cost; beyond the ends the nearest holds."""
    prior = make_prior([400.0, 100.0], lambda rate: np.array([1.0, rate / 50.0]))

    assert np.exp(prior.at(np.log2(125.0)).mean) == pytest.approx([1.0, 2.5])
    assert np.exp(prior.at(np.log2(200.0)).mean) == pytest.approx([1.0, 4.0])
    assert np.exp(prior.at(np.log2(50.0)).mean) == pytest.approx([1.0, 2.0])
    assert np.exp(prior.at(np.log2(999.0)).mean) == pytest.approx([1.0, 8.0])


@pytest.mark.parametrize(
    ("rate", "unlike"), [(100.0, ()), (200.0, ()), (81.0, ()), (79.0, ("load",)), (505.0, ("load",))]
)
def test_a_load_beyond_the_ends_by_more_than_a_level_is_unlike(rate: float, unlike: tuple[str, ...]) -> None:
    """Its costs are those of the nearest end, which say little of it."""
    prior = make_prior([400.0, 100.0], lambda _: np.ones(2))

    assert prior.unlike(np.log2(rate), width=np.log2(1.25)) == unlike


@pytest.mark.parametrize("rates", [[], [0.0], [1.0, 1.0]])
def test_rates_that_are_none_are_refused(rates: list[float]) -> None:
    """Nothing, 0, and the same twice."""
    with pytest.raises(ValueError, match="positive and each once"):
        make_prior(rates, lambda _: np.ones(2))
