"""Uneven loads from many frontends: the simulation against the computed limit and the paper."""

from __future__ import annotations

import math

import pytest

from tuner.experiments.frame.options import Options
from tuner.experiments.symphony import table2
from tuner.experiments.symphony.table2 import PUBLISHED, SETUPS, Task, expected_std, spread


@pytest.mark.parametrize(("rate", "window"), SETUPS)
@pytest.mark.parametrize("frontends", [1, 25])
def test_the_limit_is_within_two_per_cent_of_the_paper(rate, window, frontends):
    """All four published standard deviations."""
    assert expected_std(rate, window, frontends) == pytest.approx(PUBLISHED[rate, frontends], rel=0.02)


@pytest.mark.parametrize("frontends", [1, 7, 25])
def test_the_simulation_tends_to_the_limit(frontends):
    """A short simulation is within a few per cent of what is computed."""
    task = Task(rate=2000.0, window=0.2, frontends=frontends, runs=300, seed=1)

    assert spread(task) == pytest.approx(expected_std(2000.0, 0.2, frontends), rel=0.03)


def test_very_many_frontends_are_like_chance():
    """When each frontend sends next to nothing, the counts are Poisson."""
    assert expected_std(2000.0, 0.2, 100_000) == pytest.approx(math.sqrt(4.0), rel=0.001)


def test_same_seed_same_counts():
    """The simulation depends on its task alone."""
    task = Task(rate=2000.0, window=0.2, frontends=5, runs=3, seed=4)

    assert spread(task) == spread(task)


def test_rows_and_curves(tmp_path):
    """A row for each published value; simulated and computed curves for both setups."""
    result = table2.run(Options(seeds=1, quick=True, folder=tmp_path, report=print, workers=1))

    assert [row.published for row in result.rows] == list(PUBLISHED.values())
    assert all(row.measured == pytest.approx(row.published, rel=0.1) for row in result.rows)
    assert [series.name for series in result.series] == ["simulated", "computed"] * 2
    assert table2.plot(result, tmp_path)[0].exists()
