"""The experiment of the ideal: exact, and drawn."""

from __future__ import annotations

from tests.experiments.quick import quick
from tuner.experiments.symphony.analytic import AnalyticIdeal


def test_every_published_number_is_met_exactly() -> None:
    """Batch sizes, goodputs and numbers of accelerators of Table 4."""
    result = quick(AnalyticIdeal, seeds=3).run()

    assert (result.seeds, len(result.rows)) == (1, 10)
    assert all(row.measured == row.published for row in result.rows)
    assert {row.measured for row in result.rows if "goodput" in row.id} == {4501, 5839, 713, 1083}


def test_coordination_gains_with_every_accelerator() -> None:
    """Staggered goodput per accelerator grows with their number; on their own it does not."""
    result = quick(AnalyticIdeal, seeds=3).run()

    for series in result.series:
        grown = series.y == sorted(series.y) and series.y[-1] > series.y[0]  # type: ignore[operator, type-var]
        assert grown == (series.name == "staggered"), series.name
