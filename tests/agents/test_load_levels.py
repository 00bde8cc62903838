"""Load levels: the logarithmic grid of arrival rates, and the neighbours."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.agents import LoadLevels
from tuner.agents.load_levels import nearest_level, neighbours, same_neighbours, without_neighbours


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


@pytest.mark.parametrize(
    "wrong",
    [
        {"ratio": 1.0},
        {"ratio": 1.01},  # 200 requests/s would be level 532: another load, beside a neighbour
        {"hysteresis": 0.5},
        {"hysteresis": -0.1},
        {"lowest": 1e-50},
        {"lowest": 1e50},
    ],
)
def test_nonsense_is_refused(wrong: dict[str, float]) -> None:
    """The message says the rule and the values."""
    with pytest.raises(ValueError, match="must be"):
        LoadLevels(**wrong)


def test_neighbours_are_part_of_the_level() -> None:
    """Octaves of the capacity that they leave; the rate of a level is the same beside any of them."""
    levels = LoadLevels()
    alone, beside = levels.level(200.0), levels.level(200.0, foreign=0.5)

    assert alone == levels.level(200.0, foreign=0.05) == 24
    assert [neighbours(level) for level in (alone, beside, levels.level(200.0, foreign=0.75))] == [0, 1, 2]
    assert levels.rate(alone) == levels.rate(beside)
    assert neighbours(levels.level(0.1, foreign=1.0)) == 6


def test_small_moves_of_neighbours_keep_the_level() -> None:
    """A loop in another process takes 0.55 to 0.35 of two cores, depending on what the server takes."""
    levels = LoadLevels()
    level = levels.level(200.0, foreign=0.5)

    assert [levels.level(200.0, level, foreign=share) for share in (0.55, 0.35, math.nan)] == [level] * 3
    assert levels.level(200.0, level, foreign=0.1) == levels.level(200.0) == 24


@given(st.floats(0.01, 1e9), st.floats(0, 1), st.floats(0.01, 1e9))
def test_the_number_holds_rate_and_neighbours(rate: float, foreign: float, other: float) -> None:
    """Both come back, also when one of them is followed by something else."""
    levels = LoadLevels()
    level = levels.level(rate, foreign=foreign)

    assert levels.rate(level) == levels.rate(levels.level(rate))
    assert same_neighbours(level, levels.level(other, level))
    assert without_neighbours(np.array([level]))[0] == levels.level(rate)


def test_the_nearest_level_has_the_load_before_the_neighbours() -> None:
    """A load beside others is nearer than a heavier one without."""
    assert nearest_level([1024, 30], 24) == 1024
    assert nearest_level([1024, 24, 30], 24) == 24
    assert nearest_level([1020, 1028], 1024) == 1020
