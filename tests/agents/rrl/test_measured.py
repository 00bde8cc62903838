"""What the smoother remembers of the windows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.agents.load_levels import SPAN
from tuner.agents.rrl.measured import MeasuredWindows, left_on

PLACES = np.arange(6.0)[:, None]


def measured() -> MeasuredWindows:
    found = MeasuredWindows(PLACES, 100)
    for level, load, configuration, cost in ((3, 1.0, 2, 1.0), (3, 1.01, 2, math.e**2), (4, 2.0, 5, 1.5)):
        found.add(level, load, configuration, cost)
    return found


def test_windows_of_nearly_one_load_are_taken_together() -> None:
    """The mean of the logarithms, and how many there were."""
    points = measured().points(1.0, 5.0, 10)

    assert points.numbers.tolist() == [2, 5]
    assert points.windows.tolist() == [2.0, 1.0]
    np.testing.assert_allclose(points.logs, [1.0, math.log(1.5)])
    np.testing.assert_allclose(points.places[0], [2.0, 1.005, 0.0])


def test_an_even_load_gives_few_points_however_its_rate_is_drawn() -> None:
    """Rates of 1,000 Poisson requests scatter by 3 %; a load 0.2 octaves away is a point of its own."""
    found = MeasuredWindows(PLACES, 1000)
    for rate in np.random.default_rng(3).gamma(1000.0, 50.0 / 1000.0, 600):
        found.add(0, math.log2(rate), 4, 1.0)
    even = found.points(0.0, 5.0, 100).windows

    found.add(0, math.log2(50.0) + 0.2, 4, 1.0)

    assert even.size <= 2
    assert even.sum() == 600
    assert found.points(0.0, 5.0, 100).windows.tolist() == [*even, 1.0]


def test_how_bad_the_bad_ones_are_does_not_matter() -> None:
    """Costs count at most so much above the least of their load."""
    found = MeasuredWindows(PLACES, 100)
    for configuration, cost in ((0, 1.0), (1, 500.0)):
        found.add(0, 0.0, configuration, cost)

    np.testing.assert_allclose(found.points(0.0, 1.0, 10).logs, [0.0, 1.0])


def test_nearest_loads_are_taken_when_there_are_too_many() -> None:
    """And those of one level alone, if that is asked for."""
    found = measured()

    assert found.points(2.1, 5.0, 1).numbers.tolist() == [5]
    assert found.points(2.1, 5.0, 9, level=3).numbers.tolist() == [2]
    assert found.points(2.1, 5.0, 9, level=9).logs.size == 0


def test_an_era_begins_with_the_last_windows() -> None:
    """The windows since the change belong to the new one; eras long past are forgotten."""
    found = measured()

    found.begin_era(1)
    after = found.points(1.0, 5.0, 10)
    for _ in range(2):
        found.begin_era(0)

    assert (found.era, after.places[:, -1].tolist()) == (3, [0.0, 1.0])
    assert found.points(1.0, 5.0, 10).numbers.tolist() == [5]


def test_only_windows_since_the_machine_changed_are_fresh() -> None:
    """Of one load level, whatever ran."""
    found = MeasuredWindows(PLACES, 100)
    for configuration in (1, 2, 2, 3):
        found.add(0, 1.0, configuration, 1.0)
    found.add(9, 2.0, 1, 1.0)

    before = found.fresh(0), found.fresh(9), found.fresh(5)
    found.begin_era(2)

    assert before == (4, 1, 0)
    assert (found.fresh(0), found.fresh(9)) == (1, 1)


def test_those_measured_last_and_the_cheapest_are_notable() -> None:
    """However long ago the cheapest had its window, and however often the last had one before."""
    found = MeasuredWindows(PLACES, 100)
    for configuration, cost in ((0, 3.0), (1, 0.2), (2, 1.0), (3, 2.0), (0, 3.0)):
        found.add(7, 1.0, configuration, cost)

    assert found.notable(7, 1) == [0, 1]
    assert found.notable(7, 2) == [3, 0, 1, 2]
    assert found.notable(8, 2) == []


def test_a_configuration_was_measured_at_a_load_if_it_was_within_a_quarter_octave() -> None:
    """On this machine: not before it changed, and not beside other neighbours."""
    found = MeasuredWindows(PLACES, 100)
    for load in (1.0, 1.0, 2.0):
        found.add(0, load, 4, 1.0)
    found.add(SPAN, 1.0, 4, 1.0)

    assert [found.since(4, load, 0) for load in (1.0, 1.2, 0.8, 1.3, 2.1)] == [2, 2, 2, 0, 1]
    assert (found.since(4, 1.0, SPAN), found.since(3, 1.0, 0)) == (1, 0)
    found.begin_era(0)
    assert found.since(4, 1.0, 0) == 0


@pytest.mark.parametrize(("level", "left"), [(3, 1.0), (3 + SPAN, 0.5), (3 + 2 * SPAN, 0.25)])
def test_neighbours_leave_half_of_a_machine_or_a_quarter(level: int, left: float) -> None:
    """By the level of the load; an era changes nothing of that."""
    found = measured()
    found.begin_era(1)

    assert left_on(found.machine(level)) == left


def test_a_rise_is_expected_as_long_as_it_is_among_the_last_windows() -> None:
    """It is the less likely, the more windows passed without one; after 400 it is no more expected."""
    found = MeasuredWindows(PLACES, 1000)
    for load in [4.0] * 10 + [8.0] * 10 + [4.0] * 50:
        found.add(int(load), load, 0, 1.0)

    assert found.prospect(4.0) == (8, 8.0, 1 / 61)
    for _ in range(400):
        found.add(4, 4.0, 0, 1.0)
    assert found.prospect(4.0) is None


def test_what_was_forgotten_in_between_is_no_rise_of_the_load() -> None:
    """It crept up by a tenth of an octave a window, but only its first and last windows are left of that."""
    found = MeasuredWindows(PLACES, 60)
    for n in range(61):
        load = 1.0 + 0.1 * min(n, 30)
        found.add(0 if 5 < n < 25 else n, load, 0, 1.0)

    assert np.diff(found.rows()[:, 1]).max() > 1.0
    assert found.prospect(1.5) is None


def test_memory_is_bounded_and_comes_back() -> None:
    """Old windows go; what is left is saved and restored."""
    found = MeasuredWindows(PLACES, 8)
    for n in range(20):
        found.add(n, float(n), n % 6, 1.0)
    again = MeasuredWindows(PLACES, 8)
    again.restore(found.rows(), found.era, found.total)

    assert len(found) <= 8
    assert again.total == 20
    np.testing.assert_array_equal(again.points(0.0, 1.0, 99).places, found.points(0.0, 1.0, 99).places)


def test_when_the_memory_is_full_what_was_measured_most_often_is_forgotten_first() -> None:
    """Its oldest windows; the newest half of the memory stays, so that eras and rises keep their order."""
    found = MeasuredWindows(PLACES, 12)
    often, seldom = [(3, 1.0, 0)] * 7, [(4, 2.0, 1), (5, 3.0, 2)]
    windows = [(*place, float(n)) for n, place in enumerate([*seldom, *often, *seldom, *often[:2]])]
    for window in windows:
        found.add(*window)

    rows = found.rows()

    assert rows[:, 3].tolist() == [0.0, 1.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0]
    assert (found.fresh(3), found.fresh(4), found.fresh(5)) == (5, 2, 2)
    assert found.total == 13


def test_of_what_was_measured_equally_often_the_oldest_is_forgotten() -> None:
    """Where every window is of another load, the newest are remembered."""
    found = MeasuredWindows(PLACES, 8)
    for n in range(9):
        found.add(n, float(n), n % 6, 1.0)

    assert found.rows()[:, 0].tolist() == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
