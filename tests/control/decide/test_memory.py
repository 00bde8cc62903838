"""What the control loop remembers: error budget, cooldown, bans, searches, and how changes went."""

from __future__ import annotations

import pytest

from tests.builders import configuration
from tuner.control import GuardLimits
from tuner.control.decide.evidence import FailedRequests
from tuner.control.decide.memory import HOUR, Memory, Probation, Search
from tuner.errors import InvalidInput
from tuner.knobs import ApplyCost


def memory_with(**limits: float) -> Memory:
    """A memory with these limits."""
    return Memory(GuardLimits(**limits), broken=1.0)  # type: ignore[arg-type]


def test_budget_is_a_share_of_the_last_windows() -> None:
    """Charged windows age out of the last hundred."""
    memory = memory_with(budget=0.02)
    for _ in range(20):
        memory.record(0, 1, 0.5, probability=1.0)
    for _ in range(2):
        memory.record(0, 1, 1.5, probability=0.0)
    assert memory.budget_spent

    for _ in range(99):
        memory.record(0, 1, 0.5, probability=1.0)

    assert not memory.budget_spent


def test_what_is_rolled_back_again_is_banned_ever_longer() -> None:
    """The agent may learn nothing from it, as where the server dies, and would choose it again for ever."""
    memory = memory_with(retry_after=2)
    waits = []
    for _ in range(9):
        memory.ban(0, 7)
        begun = memory.windows
        while memory.banned(0):
            memory.record(0, 1, 0.5, probability=1.0)
        waits.append(memory.windows - begun)

    assert waits == [2, 4, 8, 16, 32, 64, 128, 128, 128]


def test_what_a_window_lets_stay_is_banned_as_at_first() -> None:
    """The next time."""
    memory = memory_with(retry_after=2)
    for _ in range(3):
        memory.ban(0, 7)
    memory.record(0, 7, 0.5, probability=1.0)
    memory.stays(0, 7)

    memory.ban(0, 7)

    for _ in range(2):
        assert memory.banned(0) == [7]
        memory.record(0, 1, 0.5, probability=1.0)
    assert memory.banned(0) == []


def test_a_ban_from_before_any_load_was_known_holds_under_every_load() -> None:
    """A server may die of a change before the load is known; a next life hears of it, too."""
    memory, next_life = memory_with(retry_after=2), memory_with(retry_after=2)
    memory.ban(None, 7)
    for ban in memory.bans():
        next_life.ban_again(*ban)

    for one in (memory, next_life):
        assert one.banned(None) == one.banned(3) == [7]
        one.ban(3, 8)
        assert one.banned(3) == [7, 8]
        one.stays(3, 7, judged=True)
        assert one.banned(4) == []


def test_a_window_that_has_judged_a_change_ends_the_ban() -> None:
    """The change had failed as far as anybody saw. A window that judges nothing says less: the ban stays."""
    memory = memory_with(retry_after=2)
    memory.ban(0, 7)

    memory.stays(0, 7)
    assert memory.banned(0) == [7]
    memory.stays(0, 7, judged=True)
    assert memory.bans() == []
    memory.stays(1, 7, judged=True)  # under a load without any ban


def test_a_ban_that_is_over_is_told_to_the_next_life_until_a_window_lets_the_configuration_stay() -> None:
    """There the next one lasts twice as long, too."""
    memory = memory_with(retry_after=2)
    memory.ban(0, 7)
    assert memory.bans() == [(0, 7, 2, 1)]

    for _ in range(5):
        memory.record(0, 1, 0.5, probability=1.0)
    assert memory.bans() == [(0, 7, 0, 1)]
    memory.stays(0, 7)
    assert memory.bans() == []


def test_bans_go_on_in_the_next_life() -> None:
    """They wait for its own windows, not for those that it remembers; the next one lasts twice as long."""
    earlier, later = memory_with(retry_after=2), memory_with(retry_after=2)
    earlier.ban(0, 7)
    for ban in earlier.bans():
        later.ban_again(*ban)
    for _ in range(5):
        later.record(0, 1, 0.5, probability=1.0, new=False)
    assert later.banned(0) == [7]

    for _ in range(2):
        later.record(0, 1, 0.5, probability=1.0)
    assert later.banned(0) == []
    later.ban(0, 7)
    assert later.bans() == [(0, 7, 4, 2)]


def test_a_ban_may_have_to_last_longer_than_usual() -> None:
    """What the server refuses is not asked for again before the circuit breaker lets anything else be."""
    memory = memory_with(retry_after=2)

    memory.ban(0, 7, least=9)
    memory.ban(0, 8, least=1)

    assert memory.bans() == [(0, 7, 9, 1), (0, 8, 2, 1)]


@pytest.mark.parametrize("windows", [1, 7, 14, 29])
def test_a_budget_is_spent_by_as_many_windows_as_it_says(windows: int) -> None:
    """Whatever a float makes of a hundred times the share: 0.07 * 100 is more than 7."""
    memory = memory_with(budget=windows / 100)
    for _ in range(50):
        memory.record(0, 1, 0.5, probability=1.0)
    spent = []
    for _ in range(windows):
        spent.append(memory.budget_spent)
        memory.window_passed(1.0)
        memory.record(0, 1, 0.5, probability=1.0)

    assert not any(spent)
    assert memory.budget_spent


def test_a_broken_window_is_not_charged_where_nothing_keeps_the_slo() -> None:
    """There was nothing to lose."""
    memory = memory_with(budget=0.02)
    for _ in range(5):
        memory.record(0, 1, 1.5, probability=0.0)

    assert not memory.budget_spent


def test_requests_that_a_change_delayed_are_charged_once() -> None:
    """Half a window's requests count as half a window, whether or not the window after it is usable."""
    memory = memory_with(budget=0.02)
    memory.record(0, 1, 0.5, probability=1.0)
    memory.window_passed(1.5)
    memory.window_passed(0.6)
    memory.record(0, 1, 0.5, probability=1.0)
    assert memory.budget_text().startswith("2.1 of 2 ")
    assert memory.budget_spent

    memory.record(0, 1, 0.5, probability=1.0)

    assert memory.budget_text().startswith("2.1 of 2 ")


def test_the_budget_burns_while_windows_break_the_slo() -> None:
    """By how many of the last ones did, against the share that may."""
    memory = memory_with(budget=0.02)
    for probability in (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0):
        memory.record(0, 1, 0.5, probability)

    assert memory.burning(3, rate=10.0)
    assert memory.burning(8, rate=10.0)
    assert not memory.burning(8, rate=20.0)


def test_a_configuration_that_was_rolled_back_is_banned_for_a_while() -> None:
    """It is not offered again under that load level for the limit's number of windows."""
    memory = memory_with(retry_after=2)
    memory.ban(24, 5)

    banned = []
    for _ in range(3):
        banned.append(memory.banned(24))
        memory.record(24, 1, 0.5, probability=1.0)

    assert banned == [[5], [5], []]
    assert memory.banned(25) == []


def test_a_ban_ends_the_probation() -> None:
    """What was rolled back is judged."""
    memory = memory_with()
    memory.probation = Probation(configuration(), FailedRequests())

    memory.ban(24, 5)

    assert memory.probation is None


@pytest.mark.parametrize(
    "limits",
    [
        {"step": 0.5},
        {"budget": 0.0},
        {"reloads_per_hour": -1},
        {"breaker": 0},
        {"patience": -1},
    ],
)
def test_impossible_limits_are_refused(limits: dict[str, float]) -> None:
    """Limits that cannot work name what is wrong."""
    with pytest.raises(InvalidInput, match="guard"):
        memory_with(**limits)


def test_a_search_begins_again_when_what_kept_the_slo_no_longer_does() -> None:
    """And when something better was found; not because of what never kept it."""
    search, patience = Search(), 2

    def over(best: float, *, lost: bool = False) -> bool:
        search.add(best, 0.1, tried=True, lost=lost)
        return search.tries > patience

    assert [over(1.0) for _ in range(5)] == [False, False, False, True, True]
    assert not over(1.0, lost=True)
    assert [over(1.0) for _ in range(3)] == [False, False, True]
    assert over(0.95), "a gain that chance explains"
    assert not over(0.5)


def test_a_search_is_over_at_each_load_by_itself() -> None:
    """A load never met is not searched."""
    memory = memory_with(patience=1)
    for configuration_tried in range(5):
        memory.record(3, configuration_tried, 1.0, probability=1.0)

    assert memory.search_over(3)
    assert not memory.search_over(4)


def test_what_is_known_well_ends_no_search() -> None:
    """Its first window is the best so far, and its second counts as a try: then it is known."""
    memory = memory_with(patience=2)
    for _ in range(50):
        memory.record(3, 1, 0.5, probability=1.0)
    assert not memory.search_over(3)

    for another in (2, 3):
        memory.record(3, another, 0.5, probability=1.0)

    assert memory.search_over(3)


def test_changes_are_counted_for_an_hour_by_what_they_cost() -> None:
    """Each kind for itself; what is free is not counted."""
    memory = memory_with(reloads_per_hour=2, restarts_per_hour=0)
    for now in (0.0, 10.0):
        memory.count_change(now, ApplyCost.RELOAD)
        memory.count_change(now, ApplyCost.FREE)

    assert set(memory.used_up(10.0, kept=True)) == {ApplyCost.RELOAD, ApplyCost.RESTART}
    assert memory.used_up(10.0, kept=True)[ApplyCost.RELOAD] == "the 2 reloads of this hour are used up"
    assert set(memory.used_up(HOUR, kept=True)) == {ApplyCost.RESTART}


def test_some_changes_of_an_hour_are_kept_for_a_broken_slo() -> None:
    """A quarter, rounded down."""
    memory = memory_with(reloads_per_hour=60, restarts_per_hour=3)
    for _ in range(45):
        memory.count_change(0.0, ApplyCost.RELOAD)
    for _ in range(2):
        memory.count_change(0.0, ApplyCost.RESTART)

    assert set(memory.used_up(1.0, kept=True)) == {ApplyCost.RELOAD}
    assert memory.used_up(1.0, kept=False) == {}
    for _ in range(15):
        memory.count_change(1.0, ApplyCost.RELOAD)
    assert memory.used_up(1.0, kept=True)[ApplyCost.RELOAD] == "the 60 reloads of this hour are used up"


def test_changes_pause_after_failures_in_a_row_for_ever_longer() -> None:
    """One try at a time; a success ends the pause."""
    memory = memory_with(breaker=2)
    memory.failed()
    assert memory.breaker_open_for == 0

    pauses = []
    for _ in range(9):
        memory.failed()
        pauses.append(memory.breaker_open_for)
    assert pauses == [5, 10, 20, 40, 80, 160, 320, 320, 320]

    memory.changed(0.0, ApplyCost.RELOAD)
    assert memory.breaker_open_for == 0
    memory.failed()
    assert memory.breaker_open_for == 0, "the first in a row again"


def test_the_best_by_evidence_was_seen_more_than_once() -> None:
    """A lucky window does not beat what has proved itself; enough of them do."""
    memory = memory_with()
    for _ in range(8):
        memory.record(3, 1, 0.6, probability=1.0)
    memory.record(3, 2, 0.5, probability=1.0)
    assert memory.incumbent(3) == 1

    for _ in range(8):
        memory.record(3, 2, 0.5, probability=1.0)

    assert memory.incumbent(3) == 2
    assert memory.incumbent(4) is None


def test_the_best_by_evidence_is_not_banned() -> None:
    """What was rolled back is not what a server is left with, also where nothing else is known."""
    memory = memory_with()
    for configuration_tried, cost in ((1, 0.6), (2, 0.5)):
        memory.record(3, configuration_tried, cost, probability=1.0)

    memory.ban(3, 2)
    assert memory.incumbent(3) == 1
    memory.ban(3, 1)
    assert memory.incumbent(3) is None


def test_two_configurations_differ_by_more_than_their_windows_do() -> None:
    """A twentieth is chance after one window of each, and no chance after many steady ones."""
    memory = memory_with()
    memory.record(3, 1, 1.0, probability=1.0)
    memory.record(3, 2, 0.95, probability=1.0)
    assert not memory.clearly_cheaper(3, 2, 1)

    for _ in range(20):
        memory.record(3, 1, 1.0, probability=1.0)
        memory.record(3, 2, 0.95, probability=1.0)

    assert memory.clearly_cheaper(3, 2, 1)
    assert not memory.clearly_cheaper(3, 1, 2)


@pytest.mark.parametrize("how", [{"searching": False}, {"new": False}])
def test_windows_that_end_no_search(how: dict[str, bool]) -> None:
    """Those in which nothing could be tried, and those of an earlier life, which may have only watched."""
    memory = Memory(GuardLimits(), broken=1.0)
    for _ in range(50):
        memory.record(3, 1, 5.0, probability=0.0, **how)

    assert not memory.search_over(3)


def test_a_search_does_not_end_while_the_budget_is_spent() -> None:
    """Nothing is tried then: that a server is led from one good configuration to another shows no end."""
    memory = memory_with(budget=0.01, patience=1)
    for _ in range(5):
        memory.record(3, 1, 0.5, probability=1.0)
    memory.window_passed(1.0)
    for known in (1, 2, 3):
        memory.record(3, known, 0.5, probability=1.0)

    assert memory.budget_spent
    assert not memory.search_over(3)
