"""Which thresholds DeepRecSys's distribution takes."""

from __future__ import annotations

import pytest

from tuner.errors import InvalidInput
from tuner.scheduling.catalogue import options_of


@pytest.mark.parametrize("threshold", [0, 1_000_000, (0, 200)])
def test_a_threshold_is_a_number_of_items(threshold: int | tuple[int, ...]) -> None:
    """One for all sessions, or one each."""
    assert options_of("drs")(threshold=threshold).threshold == threshold


@pytest.mark.parametrize("threshold", [-1, 0.5, 1_000_001, 10**20, (200, -1)])
def test_any_other_threshold_is_refused(threshold: object) -> None:
    """Also one that no array of the policy holds."""
    with pytest.raises(InvalidInput, match=r"^threshold: .* is no number of items; use 0 to 1,000,000"):
        options_of("drs")(threshold=threshold)
