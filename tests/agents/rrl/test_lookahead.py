"""What it is worth to run a configuration: its cost, and what its window teaches."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from tuner.agents.rrl.lookahead import horizon, regrets

NOISE = 0.06**2


def test_where_nothing_can_be_learned_a_choice_loses_what_it_costs_more() -> None:
    """However many windows follow: later ones run the best in any case."""
    costs = np.array([2.0, 1.0, 1.5])

    for windows in (1.0, 20.0):
        lost = regrets(np.log(costs), np.zeros((3, 3)), NOISE, windows)
        assert lost == pytest.approx(costs - 1.0)


def test_where_no_window_follows_a_choice_loses_what_it_is_expected_to_cost_more() -> None:
    """What it teaches is worth nothing; the mean of a log-normal cost is above its median."""
    mean, deviation = np.log([1.0, 1.0, 0.9]), np.array([0.1, 0.5, 0.3])
    costs = np.exp(mean + 0.5 * deviation**2)

    assert regrets(mean, np.diag(deviation**2), NOISE, 1.0) == pytest.approx(costs - costs.min())


def test_the_worth_of_a_window_is_that_of_the_choice_which_it_allows() -> None:
    """One configuration is sure to cost 1, another one as much in the mean: as the price of an option."""
    deviation, windows = 0.3, 10.0
    mean = np.array([0.0, -0.5 * deviation**2])
    covariance = np.diag([0.0, deviation**2])

    lost = regrets(mean, covariance, 1e-9, windows)

    gain = 1.0 - 2.0 * norm.cdf(-0.5 * deviation)  # by Black and Scholes, for a strike at the price
    assert lost[1] == 0.0
    assert lost[0] == pytest.approx((windows - 1.0) * gain, rel=0.15)


def test_a_window_that_teaches_of_others_is_worth_more() -> None:
    """Two that are as dear and as uncertain; one of them varies with a third, which is cheaper."""
    mean = np.log([1.1, 1.1, 1.0])
    covariance = 0.04 * np.array([[1.0, 0.0, 0.0], [0.0, 1.0, -0.9], [0.0, -0.9, 1.0]])

    lost = regrets(mean, covariance, NOISE, 20.0)

    assert lost[1] < lost[0]


def test_noise_makes_a_window_worth_less() -> None:
    """What one window cannot tell is no reason to try a configuration that is dearer."""
    mean, covariance = np.log([1.0, 1.1]), np.diag([0.0, 0.04])

    clear, noisy = (regrets(mean, covariance, deviation**2, 20.0) for deviation in (0.05, 1.0))

    assert clear.argmin() == 1
    assert noisy.argmin() == 0


def test_what_a_window_teaches_is_worth_nothing_where_nothing_else_would_be_chosen() -> None:
    """The mean of a log-normal cost stays what it is, whatever share of the deviation a window resolves."""
    mean, covariance = np.array([0.0, 10.0]), np.diag([0.5, 0.5])

    short, long = (regrets(mean, covariance, 0.1, windows) for windows in (1.0, 100.0))

    assert long == pytest.approx(short)


def test_what_may_be_very_dear_is_not_tried_for_a_little() -> None:
    """Its own window counts with its expected cost, which a wide distribution of the logarithm raises."""
    mean, covariance = np.log([1.0, 1.0]), np.diag([0.0, 2.0**2])

    lost = regrets(mean, covariance, NOISE, 5.0)

    assert lost.argmin() == 0
    assert math.exp(0.5 * 2.0**2) - 1.0 > lost[1] > 0.0


def test_the_longer_a_load_was_learned_from_the_less_is_explored() -> None:
    """The horizon falls by half a window a window, and stays at five."""
    assert [horizon(25.0, windows) for windows in (0, 10, 40, 1000)] == [25.0, 20.0, 5.0, 5.0]
