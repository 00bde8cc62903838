"""The guard's budget and cooldown."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.control import ErrorBudget, Guard, GuardLimits, GuardState
from tuner.control.decide.guard import Search
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


def test_a_search_that_found_nothing_begins_anew_after_twice_as_long_each_time():
    """Where nothing keeps the SLO, up to once per `review` windows; a success starts from the beginning."""
    search = Search(GuardLimits(patience=2, review=10))

    def began(windows, best=1.0, *, good=False):
        """The windows in which there is a search."""
        found = []
        for window in range(windows):
            search.record(0, best, good=good)
            if not search.over(0):
                found.append(window)
        return found

    assert began(40, good=True)[:3] == [0, 1, 2]
    assert began(1) == [0]  # what kept the SLO no longer does: it had been over for long
    rests = np.diff(began(60))
    assert sorted(set(rests[rests > 1])) == [5, 9, 10]
    assert began(1, best=0.5) == [0]


def test_a_search_is_over_at_each_load_by_itself():
    """A load never met is not searched."""
    search = Search(GuardLimits(patience=1))
    for _ in range(5):
        search.record(3, 1.0, good=True)

    assert search.over(3)
    assert not search.over(4)
