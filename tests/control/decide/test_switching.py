"""The switching cost: what a change costs in windows, how long a load lasts, what is worth doing."""

from __future__ import annotations

import pytest

from tuner.control.decide.switching import Following, SwitchingCost
from tuner.knobs import ApplyCost

RELOAD = ApplyCost.RELOAD


def run(switching: SwitchingCost, levels: str) -> None:
    """Let windows of 10 s go by, one after the other, under levels named by digits."""
    for level in levels:
        switching.window(0.0)
        switching.load(int(level), 1000.0 * int(level))


def test_a_change_costs_the_windows_whose_requests_it_delayed() -> None:
    """Only the window after it counts."""
    switching = SwitchingCost()
    run(switching, "111")
    assert switching.lost(RELOAD) == 0.0

    switching.changed(RELOAD)
    switching.window(0.5)
    switching.window(9.0)

    assert switching.lost(RELOAD) == pytest.approx(0.5)


def test_each_kind_of_change_has_its_own_cost() -> None:
    """A restart says nothing of what a change in place costs."""
    switching = SwitchingCost()
    switching.changed(ApplyCost.RESTART)

    switching.window(6.0)

    assert switching.lost(ApplyCost.RESTART) == pytest.approx(6.0)
    assert switching.lost(ApplyCost.IN_PLACE) == 0.0


def test_an_outage_is_not_the_cost_of_a_change() -> None:
    """The server was changed and then away: what the change delayed is not known."""
    switching = SwitchingCost()
    switching.changed(RELOAD)
    switching.unseen()

    switching.window(300.0)

    assert switching.lost(RELOAD) == 0.0


def test_waiting_without_a_change_costs_nothing() -> None:
    """It has other reasons."""
    switching = SwitchingCost()

    switching.window(6.0)

    assert switching.lost(RELOAD) == 0.0


def test_a_load_that_was_never_left_is_expected_to_stay_as_long_again() -> None:
    """The longer it has lasted, the longer it will."""
    switching = SwitchingCost()

    run(switching, "1111")

    assert switching.remaining == 4.0


def test_a_load_that_comes_and_goes_is_expected_to_stay_as_long_as_before() -> None:
    """Until it has stayed longer than that."""
    switching = SwitchingCost()
    run(switching, "1" * 20 + "5" * 6 + "1" * 5)
    assert switching.remaining == 15.0

    run(switching, "1" * 17)

    assert switching.remaining == 22.0


def test_a_load_between_two_levels_stays() -> None:
    """Windows that fall now under the one, now under the other, are no end of it."""
    switching = SwitchingCost()

    run(switching, "1212122121")

    assert switching.remaining == 10.0


def test_a_load_that_chance_explains_stays() -> None:
    """Twelve requests instead of twenty are nothing, though they are two levels; hundreds would be."""
    few, many = SwitchingCost(), SwitchingCost()

    for level, requests in [(13, 20), (11, 12), (14, 24), (13, 19)]:
        few.load(level, requests)
        many.load(level, 100 * requests)

    assert few.remaining == 4.0
    assert many.remaining == 2.0, "13, then 11, then 14 and 13"


def test_what_followed_a_load_follows_it_again() -> None:
    """For as long as it stayed then; a window in which the load moves is neither."""
    switching = SwitchingCost()
    run(switching, "1111")
    assert switching.following is None, "it was never left"

    run(switching, "3" + "5" * 8 + "3" + "1111")

    assert switching.following == Following(level=5, windows=8.0)


def test_what_followed_the_level_beside_follows_this_one() -> None:
    """Short windows of the same load fall now here, now there."""
    switching = SwitchingCost()

    run(switching, "1111" + "5" * 8 + "2222")

    assert switching.following == Following(level=5, windows=8.0)
    assert switching.remaining == 4.0, "the fourth of four, and as long again"


@pytest.mark.parametrize(
    ("gain", "after", "worth"),
    [
        (0.2, 0.0, True),
        (0.2, 0.04, True),
        (0.2, 0.05, False),
        (0.2, 5.0, False),
        (0.6, 5.0, False),
        (3.1, 5.0, True),
    ],
    ids=["as good", "hardly worse", "worse", "not worth", "not worth the way back", "worth the way back"],
)
def test_what_a_change_does_under_the_load_that_follows_counts_as_well(
    gain: float, after: float, worth: bool
) -> None:
    """Half a window lost for two that remain, then four of each: once for certain, once more as so far."""
    switching = SwitchingCost()
    run(switching, "1111" + "5" * 8 + "1")
    switching.changed(RELOAD)
    switching.window(0.5)
    switching.load(1, 1000.0)
    assert (switching.remaining, switching.lost(RELOAD)) == (2.0, 0.5)

    assert switching.worth(gain, RELOAD, after=after) is worth


def test_a_change_for_good_need_not_be_made_up_for_at_once() -> None:
    """A load that comes and goes will come again: what is not changed back gains then, too."""
    switching = SwitchingCost()
    run(switching, ("1111" + "5555") * 5 + "111")
    switching.changed(RELOAD)
    switching.window(0.5)
    switching.load(1, 1000.0)
    assert switching.remaining == 4.0

    assert switching.worth(0.03, RELOAD, after=0.0)
    assert not switching.worth(0.01, RELOAD, after=0.0)


def test_a_lost_window_costs_what_a_broken_one_costs() -> None:
    """By an objective for which that is twice as much, a change must gain twice as much."""
    switching = SwitchingCost(broken=2.0)
    run(switching, "1111")
    switching.changed(RELOAD)

    switching.window(0.5)
    switching.load(1, 1000.0)

    assert not switching.worth(0.12, RELOAD)
    assert switching.worth(0.24, RELOAD)


@pytest.mark.parametrize(("gain", "worth"), [(0.12, True), (0.08, False)])
def test_a_change_is_worth_what_it_gains_in_the_windows_that_remain(gain: float, worth: bool) -> None:
    """Half a window lost, five windows to come: a tenth of the SLO per window makes up for it."""
    switching = SwitchingCost()
    run(switching, "1111")
    switching.changed(RELOAD)

    switching.window(0.5)
    switching.load(1, 1000.0)

    assert switching.remaining == 5.0
    assert switching.worth(gain, RELOAD) is worth


def test_a_neighbour_that_comes_is_another_load() -> None:
    """With as many requests as before: what was learned beside others does not hold."""
    switching = SwitchingCost()
    for level in (24, 24, 24, 1024, 1024, 24):
        switching.load(level, 2000.0)

    assert switching.following == Following(1024, 2)
