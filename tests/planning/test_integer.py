"""Integer programs: what the solver prints does not reach standard output, and an answer is scipy's."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint

from tuner.planning.integer import solve_integer

KNAPSACK: dict[str, Any] = {
    "integrality": np.ones(3),
    "bounds": Bounds(0, 1),
    "constraints": LinearConstraint(np.array([[2.0, 3.0, 4.0]]), -np.inf, 5.0),
    "options": {"time_limit": 10.0},
}
"""Weights 2, 3 and 4, and a limit of 5."""


def test_the_best_of_a_knapsack_is_found() -> None:
    found = solve_integer(np.array([-3.0, -4.0, -5.0]), **KNAPSACK)
    assert found.status == 0
    np.testing.assert_allclose(found.x, [1, 1, 0], atol=1e-9)


def test_what_the_solver_prints_does_not_reach_standard_output(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def noisy(*_: object, **__: object) -> str:
        ctypes.CDLL(None).puts(b"from C, which may hold it back")
        os.write(1, b"at once\n")
        return "the answer"

    monkeypatch.setattr("scipy.optimize.milp", noisy)
    print("before")
    assert solve_integer(np.ones(3), **KNAPSACK) == "the answer"
    print("after")
    assert capfd.readouterr().out == "before\nafter\n"


def test_standard_output_is_there_again_after_an_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise ValueError("of other shapes")

    monkeypatch.setattr("scipy.optimize.milp", failing)
    with pytest.raises(ValueError, match="of other shapes"):
        solve_integer(np.ones(3), **KNAPSACK)
    os.write(1, b"still here\n")
    assert capfd.readouterr().out == "still here\n"
