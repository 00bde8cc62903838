"""Gaussian smoothing: the covariance, the fit of the reach, and predictions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.agents import naive
from tuner.agents.rrl.covariance import Hyperparameters, covariance
from tuner.agents.rrl.smoothing import (
    Leaps,
    Points,
    SmoothingParameters,
    coordinates,
    fit,
    initial_theta,
    joint_covariance,
    negative_log_posterior,
    posterior,
)
from tuner.knobs import Knob, KnobSpace

PARAMETERS = SmoothingParameters()
SPACE = KnobSpace([Knob(name="threads", grid=tuple(range(11)), default=5)])


def random_points(seed: int, count: int = 12, knobs: int = 2, machines: int = 2) -> Points:
    generator = np.random.default_rng(seed)
    places = generator.uniform(-2, 2, (count, knobs + 2))
    places[:, -1] = generator.integers(machines, size=count)
    windows = generator.integers(1, 5, count).astype(float)
    return Points(places, generator.normal(size=count), windows, np.arange(count))


@pytest.mark.parametrize("seed", range(3))
def test_covariance_is_as_written(seed: int) -> None:
    """All pairs at once give what one after the other does."""
    a, b = random_points(seed).places, random_points(seed + 10, 5).places
    hyper = Hyperparameters(np.array([0.7, 1.3, 0.4]), 0.8, 0.6, 0.9, 0.25)

    np.testing.assert_allclose(covariance(a, b, hyper), naive.covariance(a, b, hyper), rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_gradient_is_exact(seed: int) -> None:
    """Against central differences, machines included."""
    points = random_points(seed)
    theta = initial_theta(PARAMETERS, 2) + np.random.default_rng(seed).normal(0, 0.2, 5)

    _, gradient = negative_log_posterior(theta, points, PARAMETERS)

    def value(at: np.ndarray) -> float:
        return negative_log_posterior(at, points, PARAMETERS)[0]

    step = 1e-5
    numeric = [(value(theta + step * e) - value(theta - step * e)) / (2 * step) for e in np.eye(5)]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-5)


def test_octaves_of_a_grid() -> None:
    """Doublings are one apart, and 0 lies one below 1."""
    knobs = [
        Knob(name="size", grid=(0, 1, 2, 8), default=1),
        Knob(name="odd", grid=(-2, -1, 0), default=0),
    ]

    places = coordinates(KnobSpace(knobs))

    assert sorted(set(places[:, 0])) == [-1, 0, 1, 3]
    assert sorted(set(places[:, 1])) == [0, 1, 2]
    assert coordinates(KnobSpace([])).shape == (1, 0)


def test_what_was_measured_is_believed_and_the_rest_is_unsure() -> None:
    """Near a measurement the mean is its own; the deviation grows with the distance."""
    places = np.column_stack([coordinates(SPACE), np.zeros(11), np.zeros(11)])
    points = Points(places[[3, 4]], np.array([-0.5, -0.4]), np.array([50.0, 50.0]), np.array([3, 4]))

    mean, deviation = posterior(initial_theta(PARAMETERS, 1), points, PARAMETERS, places)

    assert mean[3] == pytest.approx(-0.5, abs=0.01)
    assert deviation[3] < 0.02
    assert deviation[5] < deviation[8] < deviation[0]


def test_a_configuration_alone_averages() -> None:
    """Ten windows are ten times as sure as one."""
    place = np.zeros((1, 3))
    theta = initial_theta(PARAMETERS, 1)

    def noise(windows: float) -> float:
        points = Points(place, np.array([0.3]), np.array([windows]), np.array([0]))
        return float(posterior(theta, points, PARAMETERS, place)[1][0])

    assert noise(1.0) == pytest.approx(PARAMETERS.noise, rel=0.01)
    assert noise(10.0) == pytest.approx(PARAMETERS.noise / math.sqrt(10), rel=0.01)


def test_reach_grows_where_neighbours_are_alike_and_shrinks_where_not() -> None:
    """The region adapts to how wrong the neighbours were, per knob."""
    generator = np.random.default_rng(0)
    places = np.column_stack([generator.uniform(0, 3, (60, 2)), np.zeros((60, 2))])
    logs = np.sin(4.0 * places[:, 0]) + 0.02 * places[:, 1]
    points = Points(places, logs, np.ones(60), np.arange(60))

    theta = fit(initial_theta(PARAMETERS, 2), points, replace(PARAMETERS, steps=60))

    rough, smooth = np.exp(theta[:2])
    assert rough < PARAMETERS.reach < smooth


def test_a_fit_finds_no_smaller_deviation_than_the_least() -> None:
    """Costs that are all as expected say little about those that were not measured."""
    places = np.column_stack([np.arange(8.0), np.zeros((8, 2))])
    points = Points(places, np.zeros(8), np.full(8, 9.0), np.arange(8), np.zeros((8, 1)))
    sure = replace(PARAMETERS, deviation=0.15, steps=60)
    unsure = replace(sure, least_deviation=0.15)

    deviations = [math.exp(fit(initial_theta(p, 1), points, p)[-2]) for p in (sure, unsure)]

    assert deviations[0] < 0.14
    assert deviations[1] == pytest.approx(0.15)


@pytest.mark.parametrize("seed", range(3))
def test_two_windows_hardly_change_what_was_assumed(seed: int) -> None:
    """They are explained as well by noise alone as by none; only how much costs vary is told by them."""
    beginning = initial_theta(PARAMETERS, 2)

    theta = fit(beginning, random_points(seed, 2), replace(PARAMETERS, steps=100))

    *reaches, deviation, noise = np.exp(theta - beginning)
    assert [*reaches, noise] == pytest.approx(np.ones(4), rel=0.05)
    assert 0.5 < deviation < 1.0


def test_what_makes_the_covariance_singular_is_infinitely_unlikely() -> None:
    """Points at one place whose costs vary a billion times as much as what is added to the diagonal."""
    places = np.zeros((600, 3))
    points = Points(places, np.zeros(600), np.full(600, 1e30), np.arange(600))

    value, gradient = negative_log_posterior(np.log([20.0, 20.0, 1e4, 0.02]), points, PARAMETERS)

    assert value == math.inf
    assert not gradient.any()


def test_a_fit_stays_within_what_can_be() -> None:
    """Windows are exact to 2 % at best and to 50 % at worst; reaches lie between 0.1 and 20 octaves."""
    generator, count = np.random.default_rng(0), 40
    places = np.column_stack([generator.uniform(0, 3, (count, 2)), np.zeros((count, 2))])
    dense = np.column_stack([0.05 * np.arange(count), np.zeros((count, 3))])
    few = np.round(places)

    def fitted(where: np.ndarray, logs: np.ndarray) -> tuple[float, ...]:
        points = Points(where, logs, np.full(count, 20.0), np.arange(count))
        theta = fit(initial_theta(PARAMETERS, 2), points, replace(PARAMETERS, steps=100))
        return tuple(np.exp(theta).tolist())

    flat, rough = fitted(places, np.sin(3 * places[:, 0])), fitted(dense, (-1.0) ** np.arange(count))
    noisy = fitted(few, generator.normal(0, 2, count))

    assert (flat[1], flat[-1]) == pytest.approx((20.0, 0.02))
    assert (rough[0], rough[-2]) == pytest.approx((0.1, 7.4))
    assert noisy[-1] == pytest.approx(0.5)


def test_another_machine_tells_less() -> None:
    """What was measured before the machine changed leaves more doubt than what was measured since."""
    theta, here = initial_theta(PARAMETERS, 1), np.array([[0.0, 0.0, 1.0]])

    def doubt(machine: float) -> float:
        places = np.array([[0.0, 0.0, machine], [3.0, 0.0, 1.0]])
        far = Points(places, np.zeros(2), np.full(2, 9.0), np.arange(2))
        return float(posterior(theta, far, PARAMETERS, here)[1][0])

    assert doubt(0.0) > 3 * doubt(1.0)


@pytest.mark.parametrize(
    "wrong", [{"reach": 0.0}, {"shared": 1.1}, {"optimism": -1.0}, {"points": 0}, {"least_deviation": 0.0}]
)
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    """Parameters are checked when they are made."""
    with pytest.raises(ValueError, match="must hold"):
        SmoothingParameters(**wrong)


def test_what_a_prior_knows_of_all_costs_is_part_of_the_covariance() -> None:
    """Against the formulas of a Gaussian process of mean 0, with that part added (eqs. 2.25 and 2.26)."""
    generator = np.random.default_rng(4)
    points = random_points(4, machines=1)
    loadings, there = generator.normal(size=(12, 3)), generator.normal(size=(5, 3))
    points = points._replace(loadings=loadings)
    where = random_points(5, 5, machines=1).places
    theta = initial_theta(PARAMETERS, 2)

    mean, deviation = posterior(theta, points, PARAMETERS, where, loadings=there)

    hyper = Hyperparameters(np.exp(-theta[:-2]), math.exp(2 * theta[-2]), PARAMETERS.shared, 0.0, 0.1**2)
    within = naive.covariance(points.places, points.places, hyper) + loadings @ loadings.T
    within += np.diag(math.exp(2 * theta[-1]) / points.windows)
    across = naive.covariance(points.places, where, hyper) + loadings @ there.T
    before = hyper.variance + hyper.offset + (there**2).sum(axis=1)
    expected = across.T @ np.linalg.solve(within, points.logs)
    variance = before - np.einsum("ij,ij->j", across, np.linalg.solve(within, across))
    assert mean == pytest.approx(expected, rel=1e-5)
    assert deviation == pytest.approx(np.sqrt(variance), rel=1e-4)


@pytest.mark.parametrize("known", [True, False])
def test_costs_vary_together_as_conditional_normal_numbers_do(known: bool) -> None:
    """Against the formula (eq. 2.26); what varies alone is what the posterior says."""
    generator = np.random.default_rng(9)
    points, where = random_points(9, machines=1), random_points(10, 5, machines=1).places
    loadings, there = generator.normal(size=(12, 3)), generator.normal(size=(5, 3))
    if known:
        points = points._replace(loadings=loadings)
    theta = initial_theta(PARAMETERS, 2)

    matrix = joint_covariance(theta, points, PARAMETERS, where, loadings=there)

    _, deviation = posterior(theta, points, PARAMETERS, where, loadings=there)
    assert np.sqrt(np.diagonal(matrix)) == pytest.approx(deviation)
    assert np.linalg.eigvalsh(matrix).min() > 0
    if known:
        hyper = Hyperparameters(np.exp(-theta[:-2]), math.exp(2 * theta[-2]), PARAMETERS.shared, 0.0, 0.1**2)
        within = naive.covariance(points.places, points.places, hyper) + loadings @ loadings.T
        within += np.diag(math.exp(2 * theta[-1]) / points.windows)
        across = naive.covariance(points.places, where, hyper) + loadings @ there.T
        before = naive.covariance(where, where, hyper) + there @ there.T
        assert matrix == pytest.approx(before - across.T @ np.linalg.solve(within, across), abs=1e-5)


def test_only_its_own_windows_tell_on_which_side_of_a_leap_a_configuration_is() -> None:
    """At the load of its windows nearly for sure, farther away less, on a changed machine less, too."""
    place = np.array([[0.0, 5.0, 1.0]])
    points = Points(place, np.array([-1.0]), np.array([100.0]), np.array([7]), np.zeros((1, 1)), np.ones(1))

    def predicted(number: int, *, load: float = 5.0, machine: float = 1.0) -> tuple[float, float]:
        leaps = Leaps(np.array([number]), np.ones(1))
        where = np.array([[0.0, load, machine]])
        mean, deviation = posterior(
            initial_theta(PARAMETERS, 1), points, PARAMETERS, where, loadings=np.zeros((1, 1)), leaps=leaps
        )
        return float(mean[0]), float(deviation[0])

    itself, other = predicted(7), predicted(8)
    assert itself[0] == pytest.approx(-1.0, abs=0.01)
    assert itself[1] < 0.05
    assert other[1] > 1.0
    assert itself[1] < predicted(7, load=5.5)[1] < predicted(7, load=7.0)[1]
    assert itself[1] < predicted(7, machine=2.0)[1] < predicted(8, machine=2.0)[1]


def test_leaps_are_part_of_the_covariance() -> None:
    """Against the formulas of a Gaussian process, each configuration's leap alike at all loads nearby."""
    generator = np.random.default_rng(6)
    points = random_points(7, machines=2)
    numbers = np.arange(12) % 4
    sizes, there = generator.uniform(0.1, 1.0, 12), generator.uniform(0.1, 1.0, 5)
    points = points._replace(numbers=numbers, loadings=np.zeros((12, 1)), leaps=sizes)
    where, leaps = random_points(8, 5, machines=2).places, Leaps(np.array([0, 1, 2, 3, 9]), there)
    theta = initial_theta(PARAMETERS, 2)

    mean, deviation = posterior(theta, points, PARAMETERS, where, loadings=np.zeros((5, 1)), leaps=leaps)

    hyper = Hyperparameters(np.exp(-theta[:-2]), math.exp(2 * theta[-2]), PARAMETERS.shared, 0.0, 0.1**2)
    alone = Hyperparameters(np.array([1 / PARAMETERS.load_reach]), 1.0, PARAMETERS.shared, 0.0, 0.0)

    def leaping(places: np.ndarray, names: np.ndarray, far: np.ndarray) -> np.ndarray:
        alike = np.array(naive.covariance(points.places[:, -2:], places[:, -2:], alone))
        return np.asarray(alike * (numbers[:, None] == names) * np.outer(sizes, far))

    within = naive.covariance(points.places, points.places, hyper) + leaping(points.places, numbers, sizes)
    within += np.diag(math.exp(2 * theta[-1]) / points.windows)
    across = naive.covariance(points.places, where, hyper) + leaping(where, leaps.numbers, there)
    before = hyper.variance + hyper.offset + there**2
    assert mean == pytest.approx(across.T @ np.linalg.solve(within, points.logs), rel=1e-5)
    variance = before - np.einsum("ij,ij->j", across, np.linalg.solve(within, across))
    assert deviation == pytest.approx(np.sqrt(variance), rel=1e-4)
