"""Page's test: changes are noticed soon and dated, noise is not taken for one."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.agents.rrl.drift import DriftDetector, DriftParameters


@pytest.mark.parametrize("shift", [3.0, -3.0])
def test_a_change_is_noticed_within_some_windows_and_dated(shift: float) -> None:
    """Dearer or cheaper by three standard deviations from window 100 on."""
    generator, drift = np.random.default_rng(1), DriftDetector()

    for window in range(120):
        since = drift.add(generator.normal() + shift * (window >= 100), window)
        if since is not None:
            break

    assert 100 <= window <= 106
    assert since is not None
    assert 97 <= since <= 103


def test_noise_is_no_change() -> None:
    """A thousand windows as predicted."""
    for seed in range(5):
        generator, drift = np.random.default_rng(seed), DriftDetector()
        assert all(drift.add(generator.normal(), window) is None for window in range(1000))


@pytest.mark.parametrize("sign", [1, -1])
def test_one_window_is_no_change(sign: int) -> None:
    """However far off."""
    assert DriftDetector().add(sign * 1e6, 0) is None


@pytest.mark.parametrize("sign", [1, -1])
def test_a_change_begins_with_the_first_window_that_is_off_to_its_side(sign: int) -> None:
    """Ten windows were off a little to the other one: less the allowance a twentieth each, long forgotten."""
    drift = DriftDetector()

    found = [drift.add(sign * (-0.8 if window < 10 else 4.0), window) for window in range(13)]

    assert found == [*[None] * 12, 10]


@pytest.mark.parametrize("sign", [1, -1])
def test_starts_again_after_a_change(sign: int) -> None:
    """It has to add up again."""
    drift = DriftDetector()
    found = [drift.add(sign * 4.0, window) for window in range(3)]

    assert found == [None, None, 0]
    assert drift.add(sign * 4.0, 3) is None


@pytest.mark.parametrize("sign", [1, -1])
def test_a_change_back_right_after_a_change_has_a_date_of_its_own(sign: int) -> None:
    """That of the first change is over with it."""
    drift = DriftDetector()

    found = [drift.add(sign * (4.0 if window < 6 else -4.0), window) for window in range(3, 9)]

    assert found == [None, None, 3, None, None, 6]


def test_nonsense_is_refused() -> None:
    """One window must not be able to raise the alarm."""
    with pytest.raises(ValueError, match="must hold"):
        DriftParameters(threshold=3.0)
