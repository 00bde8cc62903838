"""Uneven loads from many frontends: the simulation against the computed limit and the paper."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.experiments.quick import quick
from tuner.experiments.symphony.table2 import (
    PUBLISHED,
    SETUPS,
    Frontends,
    UnevenFrontends,
    expected_std,
    spread,
)


@pytest.mark.parametrize(("rate", "window"), SETUPS)
@pytest.mark.parametrize("frontends", [1, 25])
def test_the_limit_is_within_two_per_cent_of_the_paper(rate: float, window: float, frontends: int) -> None:
    """All four published standard deviations."""
    assert expected_std(rate, window, frontends) == pytest.approx(PUBLISHED[rate, frontends], rel=0.02)


@pytest.mark.parametrize("frontends", [1, 7, 25])
def test_the_simulation_tends_to_the_limit(frontends: int) -> None:
    """A short simulation is within a few per cent of what is computed."""
    found = spread(Frontends(2000.0, 0.2, frontends), runs=300, seed=1)

    assert found == pytest.approx(expected_std(2000.0, 0.2, frontends), rel=0.03)


def test_very_many_frontends_are_like_chance() -> None:
    """When each frontend sends next to nothing, the counts are Poisson."""
    assert expected_std(2000.0, 0.2, 100_000) == pytest.approx(math.sqrt(4.0), rel=0.001)


def test_same_seed_same_counts() -> None:
    """The simulation depends on its task and seed alone."""
    task = Frontends(2000.0, 0.2, 5)

    assert spread(task, runs=3, seed=4) == spread(task, runs=3, seed=4)


def test_rows_and_curves(tmp_path: Path) -> None:
    """A row for each published value; simulated and computed curves for both setups."""
    result = quick(UnevenFrontends).run()

    assert [row.published for row in result.rows] == list(PUBLISHED.values())
    assert all(row.measured == pytest.approx(row.published, rel=0.1) for row in result.rows)
    assert [series.name for series in result.series] == ["simulated", "computed"] * 2
    assert UnevenFrontends.plot(result, tmp_path)[0].exists()
