"""The load that triples: how recovery is counted, and a daemon that lives through it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from tests.experiments.quick import quick
from tuner.experiments.daemon import spike
from tuner.experiments.daemon.lives import Life
from tuner.experiments.daemon.spike import LoadSpike, SpikeCase, back, keep


def life(rates: Sequence[float], kept: Sequence[bool | int]) -> Life:
    return Life(np.array(rates, float), np.array(kept, bool))


def test_windows_are_counted_from_the_one_in_which_the_load_rose() -> None:
    """1 if that kept the SLO; infinite if none did before the spike was over."""
    rates = [100, 150, 300, 300, 100, 100, 300, 300, 100]

    assert back(life(rates, [1, 0, 0, 1, 1, 1, 1, 1, 1]), 100.0) == [3.0, 1.0]
    assert back(life(rates, [1, 0, 0, 0, 1, 1, 1, 1, 1]), 100.0) == [math.inf, 1.0]


@pytest.mark.slow
def test_the_daemon_is_back_within_three_windows() -> None:
    """Under a load that it never saw, and under one that it did."""
    case = SpikeCase(250.0, "cpu")

    for one in keep([case], [1]):
        assert max(back(one, case.rate)) <= 3


def test_rows_for_each_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """First and second spike, and what came after."""
    seen = life([100] * 3 + [300] * 3 + [100] * 3 + [300] * 3, [True] * 12)
    monkeypatch.setattr(spike, "CASES", (SpikeCase(100.0, "cpu"),))
    monkeypatch.setattr(spike, "keep", lambda cases, seeds: [seen for _ in cases for _ in seeds])
    monkeypatch.setattr(spike, "best", lambda rate: 0.014)

    result = quick(LoadSpike, seeds=2).run()

    assert [row.measured for row in result.rows] == [1.0, 1.0, 100.0]
    assert "p95 14.0 ms" in result.rows[0].note
