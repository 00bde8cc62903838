"""The cost map that people are shown."""

from __future__ import annotations

import pytest

from tuner.agents.load_levels import LoadLevels
from tuner.control.drive.cost_map import ShownLevel


def test_a_load_between_two_levels_shows_one_map() -> None:
    """Another one is shown when the last windows agree on it, and at once when it is far away."""
    shown = ShownLevel()

    assert [shown.follow(level) for level in (None, 20, 21, 20, 21, 20, 21)] == [None] + [20] * 6
    assert [shown.follow(21) for _ in range(4)] == [20, 21, 21, 21]
    assert [shown.follow(level) for level in (None, 30, 29)] == [21, 30, 30]


def test_a_level_says_which_loads_it_stands_for() -> None:
    """The levels meet at their bounds."""
    levels = LoadLevels()
    least, most = levels.bounds(24)

    assert levels.level(least * 1.001) == levels.level(most * 0.999) == 24
    assert most == pytest.approx(levels.bounds(25)[0])
