"""The cost of the network's tail: the delays that are asked for, and which way the goodput goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.quick import quick
from tuner.experiments.symphony.fig13 import RANGES, NetworkDelay, NetworkTails, network

DRAWN = NetworkDelay("TCP", slo_ms=20, quantile_ms=4.0, kind="drawn")


@pytest.mark.parametrize("name", RANGES)
def test_the_policy_allows_for_the_quantile_of_the_axis(name: str) -> None:
    """Whether drawn or constant, and the median stays that of the network."""
    middle, quantiles = RANGES[name]
    for quantile in quantiles:
        for kind in ("drawn", "constant"):
            found = network(NetworkDelay(name, 20, quantile, kind))
            assert found.allowed().control == pytest.approx(quantile / 1e3)
            assert found.constant == (kind == "constant" or quantile == middle)
            if not found.constant:
                assert found.delays[0].quantile(0.5) == pytest.approx(middle)


@pytest.mark.slow  # minutes without compilation
def test_a_longer_delay_costs_goodput_and_a_tail_costs_more() -> None:
    """With a tight SLO a constant delay of some ms is dear, and a drawn one with that quantile dearer."""
    tasks = (DRAWN._replace(quantile_ms=0.25), DRAWN._replace(kind="constant"), DRAWN)

    fast, constant, drawn = (quick(NetworkTails).measure(task, 1) for task in tasks)

    assert 0 < drawn < 0.97 * constant < 0.95 * fast


def test_rows_and_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A curve per range, SLO and kind, relative to the fastest network; a figure."""
    monkeypatch.setattr(
        NetworkTails, "measure", lambda _, task, seed: task.slo_ms * 100 / (1 + task.quantile_ms)
    )

    result = quick(NetworkTails, seeds=2).run()

    assert {series.panel for series in result.series} == set(RANGES)
    assert len(result.series) == len(RANGES) * 2 * 2
    assert result.series[0].y[0] == pytest.approx(1)
    assert next(row.measured for row in result.rows if row.unit == "requests/s") == pytest.approx(
        2000 / 1.024, rel=1e-3
    )
    assert NetworkTails.plot(result, tmp_path)[0].exists()
