"""Choosing among the configurations that are allowed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agents.bed import make_space
from tuner.agents import State
from tuner.agents.choice import allowed_numbers, cheapest, stay

SPACE = make_space()
ALLOWED = np.array([2, 5, 7])


def at(configuration: int) -> State:
    return State(level=3, configuration=configuration)


def test_all_are_allowed_once_unless_some_are_named() -> None:
    """Of configurations equal in effect one stands for all."""
    assert allowed_numbers(SPACE, None) is SPACE.distinct
    assert allowed_numbers(SPACE, ALLOWED).tolist() == [2, 5, 7]


@pytest.mark.parametrize(
    "allowed",
    [
        np.ones(SPACE.size, np.bool_),
        np.array([2, SPACE.size]),
        np.array([-1, 2]),
        np.array([1.0, 2.0]),
        ["2"],
    ],
)
def test_what_is_no_number_of_a_configuration_is_refused(allowed: np.ndarray) -> None:
    """A mask, above all: as numbers it would say that configurations 0 and 1 are allowed."""
    with pytest.raises(ValueError, match=rf"must hold whole numbers in 0\.\.{SPACE.size - 1} \(not a mask\)"):
        allowed_numbers(SPACE, allowed)


@pytest.mark.parametrize(
    ("costs", "current", "expected"),
    [
        ([3.0, 1.0, 2.0], 2, 5),
        ([1.0, 1.0, 1.0], 7, 7),
        ([1.0, 1.0, 2.0], 7, 2),
        ([np.nan, 4.0, np.nan], 2, 5),
        ([np.nan, np.nan, np.nan], 2, None),
    ],
)
def test_cheapest_prefers_what_is_in_force(costs: list[float], current: int, expected: int | None) -> None:
    """Then the lowest number; what is unknown is never cheapest."""
    assert cheapest(np.array(costs), ALLOWED, at(current)) == expected


def test_staying_needs_to_be_allowed() -> None:
    """Else the first allowed one is chosen."""
    assert stay(at(5), ALLOWED) == 5
    assert stay(at(6), ALLOWED) == 2
