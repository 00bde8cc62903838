"""The experiment of the ideal: exact, and drawn."""

from __future__ import annotations

from tuner.experiments.frame.options import Options
from tuner.experiments.symphony import analytic


def test_every_published_number_is_met_exactly(tmp_path):
    """Batch sizes, goodputs and numbers of accelerators of Table 4."""
    result = analytic.run(Options(seeds=1, quick=True, folder=tmp_path, report=print))

    assert len(result.rows) == 10
    assert all(row.measured == row.published for row in result.rows)
    assert {row.measured for row in result.rows if "goodput" in row.id} == {4501, 5839, 713, 1083}


def test_coordination_gains_with_every_accelerator(tmp_path):
    """Staggered goodput per accelerator grows with their number; on their own it does not."""
    result = analytic.run(Options(seeds=1, quick=True, folder=tmp_path, report=print))

    for series in result.series:
        grown = series.y == sorted(series.y) and series.y[-1] > series.y[0]
        assert grown == (series.name == "staggered"), series.name
