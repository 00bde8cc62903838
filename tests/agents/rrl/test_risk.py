"""Which configurations may be explored."""

from __future__ import annotations

import numpy as np

from tuner.agents.rrl.risk import bearable, safe


def test_caution_looks_at_the_upper_bound() -> None:
    """A cheap but unsure configuration is as unsafe as a dear one."""
    mean, deviation = np.log([0.5, 0.5, 1.2]), np.array([0.1, 0.9, 0.1])

    assert safe(mean, deviation, 1.0).tolist() == [True, False, False]
    assert safe(mean, deviation, 0.0).tolist() == [True, True, False]


def test_where_caution_leaves_nothing_all_may_be_tried() -> None:
    """One that keeps the SLO has to be found first."""
    assert safe(np.log([2.0, 3.0]), np.array([0.1, 0.1]), 1.0).tolist() == [True, True]


def test_gambles_are_not_explored_and_more_is_dared_while_nothing_keeps_the_slo() -> None:
    """What may be 30 % dearer than the best at its worst is bearable only then; overload never is."""
    kept, broken = np.log([0.8, 0.9, 1.1, 9.0]), np.log([1.6, 1.8, 2.2, 18.0])

    assert bearable(kept).tolist() == [True, True, False, False]
    assert bearable(broken).tolist() == [True, True, True, False]


def test_what_is_a_gamble_is_told_by_the_cost_at_its_worst() -> None:
    """More than 22 % above the least, or 65 % while nothing keeps the SLO."""
    assert bearable(np.log(0.8 * np.array([1.0, 1.21, 1.23]))).tolist() == [True, True, False]
    assert bearable(np.log(1.6 * np.array([1.0, 1.64, 1.66]))).tolist() == [True, True, False]


def test_after_many_windows_a_dear_one_is_no_gamble() -> None:
    """It hardly adds to their mean; so the best is not left out for ever. Overload still is."""
    worst = np.log([0.8, 0.9, 1.1, 9.0])

    assert bearable(worst, windows=200).tolist() == [True, True, False, False]
    assert bearable(worst, windows=500).tolist() == [True, True, True, False]


def test_while_nothing_keeps_the_slo_more_is_dared_sooner() -> None:
    """What twice as dear may be is tried after some tens of windows: to stay would break the SLO for ever."""
    worst = np.log([1.6, 3.1, 90.0])

    assert bearable(worst, windows=30).tolist() == [True, False, False]
    assert bearable(worst, windows=60).tolist() == [True, True, False]


def test_a_slo_that_may_be_broken_by_a_little_is_no_gamble_where_the_cost_leaps_there() -> None:
    """The least CPU is found near the SLO; overload costs more than that, and remains one."""
    worst = np.log([0.2, 0.3, 2.1, 9.0])

    assert bearable(worst).tolist() == [True, False, False, False]
    assert bearable(worst, broken=np.log(2.0)).tolist() == [True, True, True, False]
