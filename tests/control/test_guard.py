"""The guard's budget and cooldown."""

from __future__ import annotations

import pytest

from tuner.control import ErrorBudget, Guard, GuardLimits, GuardState
from tuner.errors import InvalidInput


def test_budget_is_a_share_of_the_last_windows():
    """Charged windows age out of the horizon."""
    budget = ErrorBudget(GuardLimits(budget=0.2, horizon=10))
    for charged in (True, True):
        budget.record(charged)
    assert budget.spent

    for _ in range(9):
        budget.record(False)

    assert not budget.spent


def test_cooldown_counts_windows():
    """Two windows are held, then the guard is steady again."""
    guard = Guard(GuardLimits(cooldown=2))
    guard.changed()
    guard.passed()

    assert [guard.must_hold() for _ in range(3)] == [True, True, False]
    assert guard.state is GuardState.STEADY


def test_a_configuration_that_was_rolled_back_is_banned_for_a_while():
    """It is not offered again under that load level for the limit's number of windows."""
    guard = Guard(GuardLimits(retry_after=2))
    guard.rolled_back(level=24, configuration=5)

    banned = []
    for _ in range(3):
        banned.append(guard.banned(24))
        guard.window(charged=False)

    assert banned == [[5], [5], []]
    assert guard.banned(25) == []


@pytest.mark.parametrize(
    "limits", [{"step": 0.5}, {"budget": 0.0}, {"horizon": 0}, {"gain": 1.0}, {"cooldown": -1}]
)
def test_impossible_limits_are_refused(limits):
    """A guard that cannot work names what is wrong."""
    with pytest.raises(InvalidInput):
        GuardLimits(**limits)
