"""The load that a server is under: what came belongs to one load as long as chance explains it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.builders import measurement
from tuner.agents.load_levels import LoadLevels, neighbours
from tuner.control.decide.load import REMEMBERED, Load, Loads
from tuner.measurement import Measurement


def window(
    rate: float, seconds: float = 5.0, foreign: float = 0.0, burstiness: float = math.nan
) -> Measurement:
    """A window in which requests came at a rate beside foreign processes."""
    shared = measurement(rate=rate)
    return replace(
        shared, start=shared.end - seconds, foreign_share=foreign, burstiness=burstiness, latency_mean=0.01
    )


def seen(*windows: Measurement) -> Loads:
    """The loads of a server after some windows."""
    loads = Loads(LoadLevels())
    for one in windows:
        loads.observe(one, None)
    return loads


def test_windows_that_differ_by_chance_are_of_one_load() -> None:
    """Its rate is their mean, and old ones count less."""
    load = seen(window(200), window(210), window(190)).present

    assert load.windows == 3
    assert load.rate == pytest.approx((0.81 * 200 + 0.9 * 210 + 190) / 2.71)


def test_what_is_hardly_known_of_a_load_explains_more() -> None:
    """Of 1000 requests 1150 differ by 3.4 standard deviations of the two windows' difference, 4.7 of one's.

    Ten windows, as which many count, leave 4.5 of these.
    """
    assert seen(window(200), window(225)).present.windows == 2
    assert seen(*[window(200)] * 60, window(225)).present.windows == 1


def test_a_load_that_moved_within_its_level_stays_there() -> None:
    """What is learned there is not split in two: a level is left where the rate is clearly inside another."""
    levels = LoadLevels()
    middle = levels.rate(levels.level(50_000.0, None))
    beyond = middle * levels.ratio**0.6
    loads = seen(*[window(middle)] * 3)

    loads.observe(window(beyond), loads.present.level)

    assert levels.level(beyond, None) == levels.level(middle, None) + 1
    assert (loads.present.windows, loads.present.level) == (1, levels.level(middle, None))


def test_a_load_that_moved_begins_with_its_window() -> None:
    """What came before says nothing of it."""
    assert seen(window(200), window(200), window(400)).present == Load(
        rate=400.0, foreign=0.0, seconds=5.0, windows=1, level=LoadLevels().level(400.0)
    )


def test_a_load_that_comes_back_is_known_at_once() -> None:
    """A window of 36 requests may show 18 requests/s where 15 were meant: it is the low load of before."""
    low = [window(rate, seconds=2.0) for rate in (15.0, 14.0, 16.0, 15.0)]
    loads = seen(*low, window(200), window(200))

    back = loads.after(window(18.0, seconds=2.0), None)

    assert back.level == seen(*low).present.level
    assert 15.0 < back.rate < 16.5
    assert back.windows == 5


def test_the_nearest_of_several_loads_came_back() -> None:
    """Where chance explains more than one."""
    slow, fast = [window(20.0, seconds=2.0)] * 3, [window(40.0, seconds=2.0)] * 3
    loads = seen(*slow, window(200), window(200), *fast, window(200), window(200))

    assert loads.after(window(27.0, seconds=2.0), None).rate < 25
    assert loads.after(window(30.5, seconds=2.0), None).rate > 35


def test_the_window_in_which_a_load_moves_is_not_remembered() -> None:
    """It shows a load that there never was."""
    loads = seen(*[window(15.0)] * 3, window(100.0), *[window(200.0)] * 3)

    assert loads.after(window(100.0), None).windows == 1


def test_old_loads_are_forgotten() -> None:
    """A rate that never returns is not kept for ever."""
    first = [window(10_000.0)] * 2
    others = [window(10.0 * 2**octave) for octave in range(REMEMBERED + 1) for _ in range(2)]

    assert seen(*first, *others[:-2]).after(window(10_000.0), None).windows == 3
    assert seen(*first, *others, window(1.0)).after(window(10_000.0), None).windows == 1


def test_a_load_that_comes_again_and_again_counts_once_among_those_remembered() -> None:
    """It pushes no other out."""
    first, low, high = [window(10_000.0)] * 2, [window(50.0)] * 2, [window(400.0)] * 2

    loads = seen(*first, *(low + high) * REMEMBERED)

    assert loads.after(window(10_000.0), None).windows == 3


def test_a_burst_is_no_other_load() -> None:
    """What comes in bursts scatters more."""
    assert seen(window(50.0), window(80.0)).present.windows == 1
    assert seen(window(50.0), window(80.0, burstiness=10.0)).present.windows == 2


def test_a_neighbour_that_wavers_is_one_load() -> None:
    """What it takes lies at the border of two load levels: the mean of all windows decides, once."""
    wavering = [window(200.0, foreign=share) for share in (0.62, 0.67, 0.63, 0.69, 0.6, 0.68)]

    levels = [seen(*wavering[:count]).present.level for count in range(1, len(wavering) + 1)]

    assert len(set(levels)) == 1
    assert neighbours(levels[0]) == 1


def test_what_a_neighbour_takes_is_the_mean_of_all_windows() -> None:
    """Old ones count less."""
    load = seen(window(200.0, foreign=0.2), window(200.0, foreign=0.3)).present

    assert load.foreign == pytest.approx((0.9 * 0.2 + 0.3) / 1.9)


def test_a_neighbour_that_comes_and_goes_is_two_loads() -> None:
    """Either is known when it comes back."""
    alone, beside = [window(200.0, foreign=0.05)] * 3, [window(200.0, foreign=0.5)] * 3
    loads = seen(*alone, *beside, *alone)

    assert (neighbours(loads.present.level), loads.present.windows) == (0, 6)
    assert loads.after(window(200.0, foreign=0.52), None).windows == 4


def test_where_neighbours_are_not_known_they_are_as_before() -> None:
    """A window without that figure belongs to the load like any other."""
    load = seen(window(200.0, foreign=0.5), window(200.0, foreign=math.nan)).present

    assert (load.foreign, load.windows) == (0.5, 2)
    assert math.isnan(seen(window(200.0, foreign=math.nan)).present.foreign)
