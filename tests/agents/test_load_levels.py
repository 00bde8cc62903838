"""Load levels: the logarithmic grid of arrival rates."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.agents import LoadLevels


@given(level=st.integers(-10, 60))
def test_rate_of_a_level_lies_in_it(level: int) -> None:
    """The middle of a level is in it, whatever the level before was next to it."""
    levels = LoadLevels()

    assert levels.level(levels.rate(level)) == level
    assert levels.level(levels.rate(level), level + 1) == level


def test_levels_are_a_ratio_apart() -> None:
    """25 % more load is the next level."""
    levels = LoadLevels()

    assert levels.rate(11) / levels.rate(10) == pytest.approx(1.25)


def test_border_does_not_flutter() -> None:
    """A rate just over the border keeps the level; one clearly beyond it does not."""
    levels = LoadLevels(ratio=2.0, hysteresis=0.25)

    assert levels.level(2**3.6) == 4
    assert levels.level(2**3.6, previous=3) == 3
    assert levels.level(2**3.74, previous=3) == 3
    assert levels.level(2**3.76, previous=3) == 4
    assert levels.level(2**3.3, previous=4) == 4
    assert levels.level(2**3.2, previous=4) == 3


def test_far_jump_ignores_the_previous_level() -> None:
    """Hysteresis is about neighbours only."""
    assert LoadLevels(ratio=2.0).level(2**7, previous=2) == 7


@pytest.mark.parametrize("rate", [0.0, 0.05, -1.0])
def test_hardly_any_load_is_one_level(rate: float) -> None:
    """No load has no logarithm; it counts as the lowest rate."""
    levels = LoadLevels()

    assert levels.level(rate) == levels.level(levels.lowest) == round(math.log(0.1) / math.log(1.25))


@pytest.mark.parametrize("wrong", [{"ratio": 1.0}, {"hysteresis": 0.5}, {"hysteresis": -0.1}])
def test_nonsense_is_refused(wrong: dict[str, float]) -> None:
    """The message says the rule and the values."""
    with pytest.raises(ValueError, match="must hold"):
        LoadLevels(**wrong)
