"""What may be explored while the SLO is to be kept."""

from __future__ import annotations

import numpy as np

from tuner.agents.rrl.caution import safe


def test_upper_bound_decides() -> None:
    """A cheap but unsure configuration is as unsafe as a dear one."""
    mean, deviation = np.log([0.5, 0.5, 1.2]), np.array([0.1, 0.9, 0.1])

    assert safe(mean, deviation, 1.0).tolist() == [True, False, False]
    assert safe(mean, deviation, 0.0).tolist() == [True, True, False]


def test_where_none_is_safe_all_may_be_tried() -> None:
    """One that keeps the SLO has to be found first."""
    assert safe(np.log([2.0, 3.0]), np.array([0.1, 0.1]), 1.0).tolist() == [True, True]
