"""The estimation function: anchoring, learning, and training that delays nobody."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest

from tests.agents.bed import HIGH, LOW, RATES, make_space, surface
from tuner.agents.rrl.network.estimator import Estimator, EstimatorParameters
from tuner.agents.rrl.network.network import Weights

SPACE = make_space()
SMALL = EstimatorParameters(hidden=(32, 16), steps=60)


def taught(parameters: EstimatorParameters | None = None, *, count: int = 40, seed: int = 0) -> Estimator:
    """An estimator that saw some windows at low load."""
    estimator = Estimator(SPACE.features(), parameters, seed=seed)
    costs = surface(SPACE, RATES[LOW])
    for c in np.random.default_rng(seed).permutation(SPACE.size)[:count]:
        estimator.observe(LOW, int(c), float(costs[c]))
    return estimator


def test_untrained_takes_neighbours_to_cost_the_same() -> None:
    """With fewer windows than `minimum_samples`, g = 0 (the paper's Fig. 6)."""
    estimator = taught(count=3)

    assert not estimator.trained
    assert estimator.ratios(LOW, np.arange(5), 2).tolist() == [1.0] * 5


def test_anchor_is_exact() -> None:
    """Equation 1: f(c_t, r_t) = r_t, to the last bit, for every configuration."""
    estimator = taught(SMALL)
    everything = np.arange(SPACE.size)

    assert all(estimator.ratios(LOW, everything, c)[c] == 1.0 for c in range(SPACE.size))


def test_learns_the_surface_from_half_of_it() -> None:
    """Ratios to configurations never measured are within 10 % in the median."""
    estimator = taught(count=36)
    costs = surface(SPACE, RATES[LOW])

    ratios = estimator.ratios(LOW, np.arange(SPACE.size), 0)

    assert np.median(np.abs(np.log(ratios * costs[0] / costs))) < 0.10


def test_ratio_is_limited() -> None:
    """A network that extrapolates wildly stays within the documented factor."""
    estimator = taught(EstimatorParameters(hidden=(8,), ratio_limit=1.5))
    wild = (*estimator.weights[:-2], estimator.weights[-2] + 100.0, estimator.weights[-1])
    estimator.restore(wild, estimator.samples(), estimator.first_level)

    ratios = estimator.ratios(LOW, np.arange(SPACE.size), 40)

    assert ratios.min() >= 1 / 1.5 - 1e-12
    assert ratios.max() <= 1.5 + 1e-12
    assert ratios.max() == pytest.approx(1.5)


def test_unseen_level_is_not_guessed() -> None:
    """While one level was seen only, another changes no estimate."""
    estimator = taught(SMALL)
    everything = np.arange(SPACE.size)

    assert estimator.log_costs(HIGH, everything) == pytest.approx(estimator.log_costs(LOW, everything))


def test_cost_of_zero_has_an_estimate() -> None:
    """An idle server may cost 0; its logarithm is bounded."""
    estimator = Estimator(SPACE.features(), SMALL)
    for c in range(6):
        estimator.observe(LOW, c, 0.0)

    assert np.isfinite(estimator.log_costs(LOW, np.arange(SPACE.size))).all()


def test_same_seed_same_estimates() -> None:
    """Trained synchronously, with more samples than one batch holds."""
    parameters = EstimatorParameters(hidden=(8, 4), steps=5, batch=16)
    one, two = taught(parameters, seed=5), taught(parameters, seed=5)

    assert (
        one.log_costs(LOW, np.arange(SPACE.size)).tolist()
        == two.log_costs(LOW, np.arange(SPACE.size)).tolist()
    )


def test_memory_is_bounded() -> None:
    """Old windows are forgotten, so that months of running do not slow training."""
    estimator = taught(EstimatorParameters(hidden=(4,), steps=1, memory=10))

    assert estimator.samples().shape == (10, 3)


def test_thin_keeps_an_even_sample() -> None:
    """First and last are among what is kept."""
    estimator = taught(EstimatorParameters(hidden=(4,), steps=1), count=20)
    before = estimator.samples()

    estimator.thin(5)

    assert estimator.samples().tolist() == before[[0, 5, 10, 14, 19]].tolist()


class Held(Estimator):
    """Its training waits until the test lets it go."""

    def __init__(self) -> None:
        self.started, self.go = threading.Event(), threading.Event()
        super().__init__(SPACE.features(), EstimatorParameters(hidden=(4,), steps=2), background=True)

    def _fit(self, inputs: np.ndarray, targets: np.ndarray, steps: int) -> Weights | None:
        self.started.set()
        assert self.go.wait(120)
        return super()._fit(inputs, targets, steps)


def test_training_in_the_background_delays_no_window() -> None:
    """While a training runs, windows are noted and estimates are the old ones; then weights are swapped."""
    estimator = Held()
    for c in range(4):
        estimator.observe(LOW, c, 1.0 + c)
    assert estimator.started.wait(120)

    for c in range(4, 10):
        estimator.observe(LOW, c, 1.0 + c)  # returns although training has not
    before = (estimator.trained, estimator.ratios(LOW, np.arange(3), 0).tolist())
    estimator.go.set()
    finished = estimator.trainer.wait(120)
    estimator.trainer.close()

    assert before == (False, [1.0] * 3)
    assert finished
    assert estimator.trained
    assert len(estimator.samples()) == 10


def test_close_stops_the_thread() -> None:
    """It may be called twice, and windows observed afterwards start nothing."""
    estimator = Estimator(SPACE.features(), EstimatorParameters(hidden=(4,), steps=1), background=True)
    for c in range(5):
        estimator.observe(LOW, c, 1.0)

    estimator.trainer.close()
    estimator.trainer.close()
    estimator.observe(LOW, 5, 1.0)

    assert not any(thread.name == "rrl-estimator" for thread in threading.enumerate())


def test_diverged_training_is_thrown_away() -> None:
    """Weights that are not finite never reach the policy."""
    estimator = Estimator(SPACE.features(), EstimatorParameters(hidden=(8,), learning_rate=1e38))
    for c in range(8):
        estimator.observe(LOW, c, 10.0**c)

    assert np.isfinite(estimator.log_costs(LOW, np.arange(SPACE.size))).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden": ()},
        {"steps": 0},
        {"ratio_limit": 1.0},
        {"ratio_limit": math.nan},
        {"learning_rate": 0.0},
        {"l1": -0.1},
        {"l2": math.nan},
    ],
)
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    """Parameters are checked when they are made."""
    with pytest.raises(ValueError, match=r"hidden|ratio_limit|learning_rate"):
        EstimatorParameters(**wrong)
