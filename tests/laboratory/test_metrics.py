"""The figures of a run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.laboratory import naive
from tests.laboratory.agent_runs import made_run
from tuner.laboratory.metrics import ccdf, figures_of, is_near, running_mean, windows_to_converge


@pytest.mark.parametrize("seed", range(20))
def test_measures_are_those_of_their_plain_twins(seed: int) -> None:
    """Running means with gaps, and windows to converge, on random runs that settle at a random moment."""
    generator = np.random.default_rng(seed)
    n = int(generator.integers(1, 80))
    values = np.where(generator.random(n) < 0.2, math.nan, generator.random(n))
    best = 0.5 + generator.random(n)
    late = np.arange(n) >= generator.integers(0, n)
    expected = best * np.where(late, 1.0 + 0.06 * generator.random(n), 1.0 + generator.random(n))

    for span in (1, 3, 10):
        assert running_mean(values, span) == pytest.approx(naive.running_mean(values, span), nan_ok=True)
    assert windows_to_converge(expected, best) == naive.windows_to_converge(expected, best)


def test_converged_is_near_for_good() -> None:
    """One bad window counts for as long as it is in the mean; the last ten must all be near."""
    best = np.ones(40)
    expected = best.copy()

    assert windows_to_converge(expected, best) == 1
    expected[0] = 3.0
    assert windows_to_converge(expected, best) == 11
    expected[25] = 2.0
    assert windows_to_converge(expected, best) == math.inf
    expected[25] = 1.4  # a mean of 1.04 over ten windows
    assert windows_to_converge(expected, best) == 11


def test_a_dear_best_allows_more() -> None:
    """What is near is measured against the oracle's mean over the same windows."""
    best = np.concatenate((np.full(20, 1.0), np.full(20, 10.0)))
    expected = best + 0.06

    assert is_near(expected, best).tolist() == [False] * 20 + [True] * 20
    assert windows_to_converge(expected, best) == 21


def test_without_exact_costs_nothing_is_said_of_convergence() -> None:
    """NaN, which is not the same as never."""
    run = made_run(expected=np.full(30, math.nan), best=np.full(30, math.nan))

    found = figures_of(run)

    assert math.isnan(found.windows_to_converge)
    assert math.isnan(found.windows_off)
    assert math.isnan(found.regret)


def test_windows_that_were_not_measured_are_left_out_and_counted() -> None:
    """Means are over what was measured; the number that was skipped is reported."""
    cost = np.array([1.0, math.nan, 3.0, 2.0])
    run = made_run(
        cost=cost, learned=np.isfinite(cost), kept=np.array([0.0, 0.0, 1.0, 1.0]), gpu=np.full(4, math.nan)
    )

    found = figures_of(run)

    assert (found.mean_cost, found.skipped, found.slo_violations) == (2.0, 1, 0.5)
    assert found.resource == found.cpu
    assert found.windows_to_converge == math.inf  # four windows are too few to stay


def test_exceeding_shares() -> None:
    """Strictly more than the threshold; without values there is no share."""
    assert ccdf(np.array([1.0, 2.0, math.nan, 3.0, 4.0]), np.array([0.5, 2.0, 9.0])).tolist() == [
        1.0,
        0.5,
        0.0,
    ]
    assert np.isnan(ccdf(np.array([math.nan]), np.array([1.0]))).all()
