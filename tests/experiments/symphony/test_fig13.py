"""The cost of the network's tail: the delays that are asked for, and which way the goodput goes."""

from __future__ import annotations

import pytest

from tuner.experiments.frame.options import Options
from tuner.experiments.symphony import fig13
from tuner.experiments.symphony.fig13 import RANGES, Task, measure, network


def task(**changes):
    """A short search."""
    chosen = {"range": "TCP", "slo_ms": 20.0, "quantile_ms": 4.0, "kind": "drawn", "seconds": 1.0, "seed": 1}
    return Task(**{**chosen, **changes})


@pytest.mark.parametrize("name", RANGES)
def test_the_policy_allows_for_the_quantile_of_the_axis(name):
    """Whether drawn or constant, and the median stays that of the network."""
    middle, quantiles = RANGES[name]
    for quantile in quantiles:
        for kind in ("drawn", "constant"):
            found = network(task(range=name, quantile_ms=quantile, kind=kind))
            assert found.allowed().control == pytest.approx(quantile / 1e3)
            assert found.constant == (kind == "constant" or quantile == middle)
            if not found.constant:
                assert found.delays[0].quantile(0.5) == pytest.approx(middle)


@pytest.mark.slow  # minutes without compilation
def test_a_longer_delay_costs_goodput_and_a_tail_costs_more():
    """With a tight SLO a constant delay of some ms is dear, and a drawn one with that quantile dearer."""
    fast = measure(task(quantile_ms=0.25))
    constant = measure(task(kind="constant"))
    drawn = measure(task())

    assert 0 < drawn < 0.97 * constant < 0.95 * fast


def test_rows_and_curves(tmp_path, monkeypatch):
    """A curve per range, SLO and kind, relative to the fastest network; a figure."""
    monkeypatch.setattr(fig13, "measure", lambda one: one.slo_ms * 100 / (1 + one.quantile_ms))

    result = fig13.run(Options(seeds=2, quick=True, folder=tmp_path, report=print, workers=1))

    assert {series.panel for series in result.series} == set(RANGES)
    assert len(result.series) == len(RANGES) * 2 * 2
    assert result.series[0].y[0] == pytest.approx(1)
    assert next(row.measured for row in result.rows if row.unit == "requests/s") == pytest.approx(
        2000 / 1.024, rel=1e-3
    )
    assert fig13.plot(result, tmp_path)[0].exists()
