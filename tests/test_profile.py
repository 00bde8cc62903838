"""Fitting l(b) to totals per batch size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.profile import BatchingProfile, fit_profile


def totals(latency: Callable[[int], float], numbers: list[int]) -> tuple[np.ndarray, np.ndarray]:
    counts = np.array(numbers)
    return counts, np.array([latency(b) for b in range(counts.size)]) * counts


@given(st.floats(1e-5, 1e-2), st.floats(1e-5, 1e-2))
def test_recovers_an_exact_line(alpha: float, beta: float) -> None:
    """Noise-free totals give alpha and beta back, with no residual."""
    profile = fit_profile(*totals(lambda b: alpha * b + beta, [0, 100, 50, 20, 10]))

    assert profile.alpha == pytest.approx(alpha, rel=1e-6)
    assert profile.beta == pytest.approx(beta, rel=1e-6)
    assert profile.residual == pytest.approx(0, abs=1e-9)
    assert (profile.largest, profile.executions) == (4, 180)


def test_ignores_batch_sizes_with_few_executions() -> None:
    """Four executions of batch 4 say nothing."""
    counts, seconds = totals(lambda b: 0.001 * b + 0.004, [0, 100, 50, 20, 4])
    seconds[4] *= 100

    profile = fit_profile(counts, seconds)

    assert profile.alpha == pytest.approx(0.001)
    assert profile.largest == 3


def test_one_batch_size_is_all_beta() -> None:
    """Without batching the split cannot be known."""
    profile = fit_profile(*totals(lambda b: 0.005, [0, 100]))

    assert (profile.alpha, profile.beta) == pytest.approx((0.0, 0.005))


def test_nothing_executed_gives_no_profile() -> None:
    """There is nothing to fit."""
    assert fit_profile(np.zeros(4, dtype=int), np.zeros(4)) is None


@pytest.mark.parametrize("latency", [lambda b: 0.004 - 0.0005 * b, lambda b: 0.001 * b * b])
def test_coefficients_are_never_negative(latency: Callable[..., Any]) -> None:
    """A falling or strongly curved profile pins the negative coefficient to 0."""
    profile = fit_profile(*totals(latency, [0, 50, 50, 50, 50]))

    assert profile.alpha >= 0
    assert profile.beta >= 0


def test_latency_and_throughput_follow_the_line() -> None:
    """l(b) and b / l(b)."""
    profile = BatchingProfile(alpha=0.001, beta=0.004)

    assert profile.latency(4) == pytest.approx(0.008)
    assert profile.throughput(4) == pytest.approx(500)


def test_impossible_profiles_are_refused() -> None:
    """Latencies are positive."""
    with pytest.raises(ValueError, match="alpha >= 0"):
        BatchingProfile(alpha=-1, beta=1)
