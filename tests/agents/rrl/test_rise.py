"""How likely the load rises, and how far."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.agents.rrl.rise import likely_rise

LOW, HIGH = 4.0, 8.0


def test_a_load_that_never_moved_is_not_expected_to_rise() -> None:
    """Nor one of which little is known."""
    for loads in ([], [LOW], [LOW] * 50, [LOW, LOW + 0.4, LOW] * 10):
        assert likely_rise(np.array(loads), LOW) is None


def test_every_tenth_window_the_load_rises() -> None:
    """One rise in ten windows of the low load; at the high load no rise is likely."""
    loads = np.array(([LOW] * 10 + [HIGH] * 10) * 20)
    rise = likely_rise(loads, LOW)

    assert rise is not None
    assert loads[rise.window] == HIGH
    assert rise.chance == pytest.approx(0.1, rel=0.05)
    assert likely_rise(loads, HIGH) is None


def test_what_fell_may_rise_again() -> None:
    """Four windows after a fall, and no rise so far: half a rise in five windows."""
    rise = likely_rise(np.array([HIGH] * 10 + [LOW] * 4), LOW)

    assert rise is not None
    assert rise.chance == pytest.approx(0.5 / 5)


@pytest.mark.parametrize("between", [LOW + 0.3, LOW + 2.0, HIGH - 0.3])
def test_a_window_in_which_the_load_rises_is_no_load_of_its_own(between: float) -> None:
    """Whatever the window of the change shows: one rise, to the high load."""
    loads = np.array([LOW] * 5 + [between] + [HIGH] * 5)
    rise = likely_rise(loads, LOW)

    assert rise is not None
    assert loads[rise.window] == HIGH
    assert rise.chance == pytest.approx(0.5 / (1 + np.count_nonzero(np.abs(loads - LOW) <= 0.5)))


@pytest.mark.parametrize("between", [LOW + 0.3, LOW + 2.0, HIGH - 0.3])
def test_a_window_in_which_the_load_falls_is_no_load_of_its_own(between: float) -> None:
    """It may rise again to what it fell from, and not to what that window shows."""
    loads = np.array([HIGH] * 5 + [between] + [LOW] * 5)
    rise = likely_rise(loads, LOW)

    assert rise is not None
    assert loads[rise.window] == HIGH
    assert rise.chance == pytest.approx(0.5 / (1 + np.count_nonzero(np.abs(loads - LOW) <= 0.5)))


def test_half_as_much_load_again_is_a_rise() -> None:
    """0.58 octaves; what comes and goes by a third of it, 0.42 octaves, is none."""
    for more, rises in ((1.5, True), (4 / 3, False)):
        loads = np.log2(np.array([100.0] * 10 + [100.0 * more] * 10))

        assert (likely_rise(loads, loads[0]) is not None) == rises


def test_a_step_is_between_the_two_windows_before_it_and_the_two_after_it() -> None:
    """A rise from a load in the middle is none from the low one, nor does that one rise to where it ends."""
    rise = likely_rise(np.array([LOW, 6.0, 6.0, HIGH, HIGH]), LOW)

    assert rise is not None
    assert rise.window == 1
    assert rise.chance == pytest.approx(0.5 / 2)


@pytest.mark.parametrize(
    "highs", [[6.0, HIGH, HIGH, HIGH, 12.0, 6.0, HIGH, HIGH, HIGH, 12.0], [6.0, HIGH, 12.0]]
)
def test_of_several_loads_the_middle_one_is_expected(highs: list[float]) -> None:
    """A load that came once says less than one that comes again and again."""
    loads = np.array([[LOW, high] for high in highs]).ravel()
    rise = likely_rise(loads, LOW)

    assert rise is not None
    assert loads[rise.window] == HIGH
