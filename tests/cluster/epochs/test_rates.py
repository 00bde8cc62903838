"""Rates that a planner learns from what came."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.cluster.epochs.rates import RateEstimate, changed
from tuner.cluster.epochs.record import Observed


def seen(*requests: int, seconds: float = 10.0) -> Observed:
    return Observed(seconds, np.array(requests), 0, np.zeros(1))


@pytest.fixture
def estimate() -> RateEstimate:
    return RateEstimate(np.array([100.0, 10.0]), np.array([0.01, 0.1]), memory=30.0)


def test_chance_changes_a_mean_only_a_little(estimate: RateEstimate) -> None:
    """Requests of one look, of four that count."""
    estimate.see(seen(1030, 110))

    assert estimate.known.rate == pytest.approx([100.8, 10.3], abs=0.3)


def test_a_clearly_different_rate_begins_again(estimate: RateEstimate) -> None:
    """That of the one session, and the other keeps its mean."""
    estimate.see(seen(1400, 100))

    assert estimate.known.rate == pytest.approx([140.0, 10.0])
    assert estimate.known.seconds.tolist()[0] == 10.0
    assert estimate.known.seconds.tolist()[1] > 30.0


def test_many_small_changes_are_one_of_the_load() -> None:
    """None of fifty sessions has clearly changed by itself, and all together have."""
    known = RateEstimate(np.full(50, 5.0), np.full(50, 0.1), memory=30.0).known

    assert changed(seen(*[60] * 50), known, np.full(50, 0.1)).all()
    assert not changed(seen(60, *[50] * 49), known, np.full(50, 0.1)).any()
