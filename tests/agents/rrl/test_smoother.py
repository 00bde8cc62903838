"""What follows from the windows: when the reach is fitted, what is a surprise, and which are compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.agents.bed import LOW, make_space
from tuner.agents import State
from tuner.agents.rrl import RRLParameters
from tuner.agents.rrl.perception import SmoothPerception
from tuner.agents.rrl.prior import LogCosts, make_prior
from tuner.agents.rrl.smoother import Smoother
from tuner.agents.rrl.smoothing import Points, SmoothingParameters, initial_theta

SPACE = make_space()
STATE = State(level=LOW, configuration=7)


def perception(costs: np.ndarray) -> SmoothPerception:
    """One with a prior, whose reach is fixed."""
    parameters = RRLParameters(smoothing=SmoothingParameters(adaptive=False))
    made = SmoothPerception(SPACE, parameters, synchronous=True)
    made.start_from(make_prior([150.0], lambda _: costs))
    return made


@pytest.mark.parametrize(("changed", "fits"), [(None, 0), (1, 1)])
def test_the_reach_is_fitted_as_soon_as_the_machine_has_changed(
    monkeypatch: pytest.MonkeyPatch, changed: int | None, fits: int
) -> None:
    """Which configurations are alike may be other ones; else one window after 41 is no reason to fit."""
    counted: list[int] = []

    def fit(theta: np.ndarray, points: Points, _: SmoothingParameters) -> np.ndarray:
        counted.append(points.logs.size)
        return theta

    monkeypatch.setattr("tuner.agents.rrl.smoother.fit", fit)
    smoother = Smoother(SPACE, RRLParameters())
    for _ in range(41):
        smoother.add(STATE, 7, 0.5, None)
    smoother.refit(1)
    counted.clear()

    smoother.add(STATE, 7, 0.5, changed)
    smoother.refit(1)

    assert len(counted) == fits


@pytest.mark.parametrize("knew", [True, False])
def test_what_was_fitted_stays_while_a_prior_learns_more(knew: bool) -> None:
    """But not as it says something for the first time: then costs only differ from that, which is less."""
    prior: Any = SimpleNamespace(ready=knew)

    def watch(number: int, seen: Mapping[str, float]) -> bool:
        prior.ready = True
        return True

    prior.watch = watch
    smoother = Smoother(SPACE, RRLParameters())
    fitted = np.full(smoother.theta.size, -1.5)
    smoother.restore(prior, smoother.nothing_measured(), fitted, 9)

    smoother.watch(7, {})

    expected = fitted if knew else initial_theta(smoother.constants, len(SPACE.knobs))
    assert smoother.theta.tolist() == expected.tolist()
    assert smoother.fitted == (9 if knew else 0)


def test_windows_tell_of_no_other_configuration_whether_its_cost_leaps() -> None:
    """By the prior each cost is one of two, and what is known of the others leaves open which."""
    flat = LogCosts(
        np.zeros(SPACE.size), np.zeros(SPACE.size), np.zeros((SPACE.size, 1)), np.ones(SPACE.size)
    )
    prior: Any = SimpleNamespace(ready=True, at=lambda load, left=1.0: flat)
    smoother = Smoother(SPACE, RRLParameters())
    smoother.start_from(prior)

    for _ in range(5):
        smoother.add(STATE, 7, 1.0, None)

    _, (measured, other) = smoother.predict(STATE, np.array([7, 8]))
    assert measured < 0.2
    assert other > 1.0


def test_a_surprise_is_what_neither_the_prediction_nor_a_window_explains() -> None:
    """In standard deviations of both together: how sure the one is, and how exact the other."""
    smoother = Smoother(SPACE, RRLParameters())
    for _ in range(3):
        smoother.add(STATE, 7, 0.5, None)
    (mean,), (deviation,) = smoother.predict(STATE, np.array([8]))
    assert deviation > math.sqrt(smoother.noise)

    found = smoother.surprise(STATE, 8, 0.6)

    assert found == pytest.approx((math.log(0.6) - mean) / math.sqrt(deviation**2 + smoother.noise))


def test_the_cheapest_is_compared_however_sure_its_cost_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where more configurations than can be compared may turn out cheaper."""
    monkeypatch.setattr("tuner.agents.rrl.perception.FOREMOST", 1)
    costs = np.ones(SPACE.size)
    costs[7] = 0.9
    made, every = perception(costs), np.arange(SPACE.size)
    for _ in range(9):
        made.learn(STATE, 7, 0.9, STATE)
    mean, deviation = made.smoother.predict(STATE, every)
    assert mean.argmin() == 7
    assert (mean - 1.5 * deviation).argmin() != 7

    values = made.values(STATE, every)

    assert np.isfinite(values[7])
    assert np.isfinite(values).sum() == 2


def test_a_changed_machine_is_explored_as_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a window teaches counts for as long as at first: windows before the change do not count."""
    made, every = perception(np.ones(SPACE.size)), np.arange(SPACE.size)
    for _ in range(10):
        made.learn(STATE, 7, 1.0, STATE)
    asked: list[int] = []

    def horizon(first: float, windows: int) -> float:
        asked.append(windows)
        return first

    monkeypatch.setattr("tuner.agents.rrl.perception.horizon", horizon)

    made.values(STATE, every)
    made.smoother.measured.begin_era(2)
    made.values(STATE, every)

    assert asked == [10, 2]
