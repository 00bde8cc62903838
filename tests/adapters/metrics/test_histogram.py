"""Quantiles of latencies that are counted in buckets."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import PchipInterpolator

from tuner.adapters.metrics.histogram import Histogram, PrintedSum, monotone_cubic

BOUNDS = np.append(10e-6 * 1.8 ** np.arange(33), np.inf)


def histogram(latencies: np.ndarray) -> Histogram:
    places = np.searchsorted(BOUNDS, latencies, side="right")
    return Histogram(BOUNDS, np.bincount(places, minlength=BOUNDS.size))


@pytest.mark.parametrize(("share", "error"), [(0.5, 0.05), (0.95, 0.06), (0.99, 0.12)])
@pytest.mark.parametrize("kind", ["lognormal", "gamma", "shifted"])
def test_quantiles_are_close(kind: str, share: float, error: float) -> None:
    """Buckets that grow by 1.8 give quantiles within a few percent; a straight line is up to 26 % off."""
    generator = np.random.default_rng(7)
    for scale in 10.0 ** generator.uniform(-3, -1, 10):
        latencies = scale * {
            "lognormal": generator.lognormal(0, 0.5, 3000),
            "gamma": 0.3 + generator.gamma(2.0, 0.3, 3000),
            "shifted": 0.5 + generator.exponential(0.7, 3000),
        }[kind]  # fmt: skip

        assert histogram(latencies).quantile(share) == pytest.approx(np.quantile(latencies, share), rel=error)


def test_nothing_counted_is_not_known() -> None:
    """There is no quantile of nothing."""
    assert np.isnan(Histogram(BOUNDS, np.zeros(34, np.int64)).quantile(0.5))


def test_all_in_one_bucket() -> None:
    """The quantile lies in it."""
    counts = np.zeros(34, np.int64)
    counts[12] = 5

    assert BOUNDS[11] <= Histogram(BOUNDS, counts).quantile(0.95) <= BOUNDS[12]


@given(st.lists(st.integers(0, 200), min_size=34, max_size=34).filter(any))
def test_quantiles_increase_and_stay_in_their_bucket(counts: list[int]) -> None:
    """A larger share has a quantile at least as large, in the bucket it must be in."""
    found = Histogram(BOUNDS, np.array(counts))
    shares = np.array([0.05, 0.5, 0.9, 0.95, 0.99])
    quantiles = [found.quantile(share) for share in shares]

    assert all(low <= high * (1 + 1e-9) for low, high in pairwise(quantiles))
    edges = np.concatenate(([BOUNDS[0] / 1.8], BOUNDS))
    for share, quantile in zip(shares, quantiles, strict=True):
        bucket = int(np.searchsorted(np.cumsum(counts), share * sum(counts) - 1e-9))
        assert edges[bucket] * 0.99 <= quantile <= edges[bucket + 1] * 1.8


@given(
    st.lists(st.floats(0.01, 10), min_size=1, max_size=8),
    st.lists(
        st.floats(-5, 5).map(lambda height: round(height, 9)), min_size=9, max_size=9
    ),  # SciPy overflows
    st.floats(0, 1),
)
def test_the_cubic_is_scipys(steps: list[float], heights: list[float], place: float) -> None:
    """Also where the data turn, and at both ends."""
    x = np.concatenate(([0.0], np.cumsum(steps)))
    y = np.array(heights[: x.size])
    at = float(place * x[-1])

    expected = float(PchipInterpolator(x, y)(at)) if x.size > 1 else y[0]

    assert monotone_cubic(x, y, at) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_difference_of_two_readings() -> None:
    """What came in between; from before the first entry everything, from other buckets nothing."""
    early, late = histogram(np.full(5, 0.01)), histogram(np.full(9, 0.01))
    empty = Histogram(np.array([np.inf]), np.zeros(1, np.int64))
    other = Histogram(np.array([1.0, np.inf]), np.array([3, 0]))

    assert late.since(early).counts.sum() == 4
    assert late.since(empty).counts.sum() == 9
    assert late.since(other).counts.sum() == 0


def test_a_small_sum_is_what_is_printed() -> None:
    """Below a million the six digits are all of it, whatever the buckets say."""
    total = PrintedSum(1000.0)

    total.add(1500.0, 9999.0)

    assert total.total == 500.0


def test_a_large_sum_is_followed_in_between() -> None:
    """A month of traffic prints in steps of ten million; windows of one million are still seen."""
    generator, true = np.random.default_rng(0), 1.23456e12
    total, begun = PrintedSum(float(f"{true:g}")), true
    windows = []
    for _ in range(200):
        grown = generator.uniform(0.9e6, 1.1e6)
        true += grown
        before = total.total
        total.add(float(f"{true:g}"), 1.02e6)  # the buckets are 2 % off
        windows.append(total.total - before)

    assert total.total == pytest.approx(true - begun, abs=5e6)
    assert np.median(windows) == pytest.approx(1e6, rel=0.05)
    assert min(windows) >= 0


def test_a_restart_begins_at_zero() -> None:
    """The total goes on."""
    total = PrintedSum(5000.0)
    total.add(6000.0, 1000.0)

    total.add(300.0, 300.0, reset=True)

    assert total.total == 1300.0
