"""The scheduler alone and the goodput of growing clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.quick import quick
from tuner.experiments.symphony import fig11
from tuner.experiments.symphony.fig11 import SchedulerScale, ideal, search


def test_the_ideal_by_hand() -> None:
    """20 accelerators for 20 sessions: each has one, and half the SLO is waiting."""
    # 2.05 b + 5.378 <= 50 gives b = 21, executed in 48.428 ms.
    assert ideal(20) == pytest.approx(20 * 21 / 48.428e-3)


def test_the_ideal_grows_faster_than_the_accelerators() -> None:
    """More accelerators stagger the batches of a session more finely."""
    assert ideal(64) > 4 * ideal(16)
    assert ideal(1024) > 16 * ideal(64)


@pytest.mark.slow  # minutes without compilation
def test_goodput_lies_below_the_ideal_and_grows() -> None:
    """Random arrivals cost something; four times the accelerators serve at least four times as much."""
    few, many = (search(count, seconds=0.5, seed=1) for count in (16, 64))

    assert 0.7 * ideal(16) < few < ideal(16)
    assert 4 * few < many < ideal(64)


def test_rows_and_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three panels of the scheduler alone, one of the goodput, and the figure."""
    monkeypatch.setattr(fig11, "search", lambda count, seconds, seed: 0.9 * ideal(count))
    monkeypatch.setattr(fig11, "seconds_alone", lambda scenario, requests, repeats: 1e-3 * requests)
    monkeypatch.setattr(fig11, "seconds_together", lambda scenario, requests, threads: (1e-3 * requests, 1))

    result = quick(SchedulerScale, seeds=2).run()

    assert [series.panel for series in result.series][3:] == ["goodput", "goodput"]
    assert [row.measured for row in result.rows][:2] == [1000, 2000]
    assert all(row.note == "90.0% of the ideal" for row in result.rows if row.id.startswith("goodput"))
    assert SchedulerScale.plot(result, tmp_path)[0].exists()
