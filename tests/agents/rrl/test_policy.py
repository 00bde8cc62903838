"""Learning rates and temperatures."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.agents.rrl.schedule import geometric, inverse_logits


def test_geometric_grows_and_stops() -> None:
    """From exploration to exploitation, without overflow in a year of windows."""
    assert [geometric(2.0, 1.5, 10.0, n) for n in (0, 1, 2, 10**9)] == pytest.approx([2.0, 3.0, 4.5, 10.0])


def test_logits_of_the_authors_code() -> None:
    """20e6 over microseconds: 300 ms gives 66.7."""
    assert inverse_logits(np.array([0.3, 0.5])) == pytest.approx([66.667, 40.0], rel=1e-4)


def test_large_logits_are_halved_together() -> None:
    """1 ms would give 20,000; six halvings bring it to 312.5, and the other along."""
    assert inverse_logits(np.array([0.001, 0.002])) == pytest.approx([312.5, 156.25])


def test_logits_of_exactly_the_limit_stay() -> None:
    """Halving stops at 500."""
    assert inverse_logits(np.array([0.04])).tolist() == [500.0]
