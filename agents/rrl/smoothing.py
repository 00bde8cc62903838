"""A Gaussian process over configurations and loads: RRL's region without a hard edge.

Beyond the paper. A region of fixed size assumes how far a measurement may be trusted. Here that is *fitted*:
the logarithms of the costs are a Gaussian process over the knobs and the load, with a length scale per knob,
its reach. Maximising the marginal likelihood shrinks a reach where neighbours turned out to differ and lets
it grow where they did not (Rasmussen and Williams, "Gaussian processes for machine learning", 2006, sections
2.2, 2.7 and 5.4).

What is assumed, and why:

* *Logarithms of costs.* The noise of a window is a share of its cost, and in overload costs are 30 times as
  large. On the logarithm the noise is alike everywhere, which the process assumes, and a tenth less counts
  the same everywhere.
* *Octaves.* Distances are in octaves of the knobs' values, because one thread or two matters more than nine
  or ten.
* *Matern 5/2.* A squared exponential would take costs for smoother than they are (Snoek et al., "Practical
  Bayesian optimization of machine learning algorithms", NIPS'12, section 3.1): they have kinks, such as where
  a batch fills.
* *A trend over the load.* All configurations cost more at a higher load. A linear trend takes that up, so
  that the reach of the load only describes how the best configuration moves.
* *Leaps.* A prior may say that a cost is one of two, that of a kept SLO or that of a broken one. What it
  leaps is each configuration's own: only its windows, at loads nearby, tell which of the two it is.
* *An offset per machine.* A slower machine makes every configuration dearer by about the same factor. To the
  smoother a server is on another machine after a drift, and beside other neighbours
  (:mod:`tuner.agents.rrl.measured`).

All functions here are pure. The hyperparameters are a vector ``theta``: the logarithms of each knob's reach,
of the load's reach, of the standard deviation of costs, and of that of the noise of one window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tuner.agents.rrl.covariance import Hyperparameters, by_machine, contract, covariance
from tuner.knobs import Knob, KnobSpace

__all__ = [
    "Leaps",
    "Points",
    "SmoothingParameters",
    "coordinates",
    "fit",
    "initial_theta",
    "joint_covariance",
    "negative_log_posterior",
    "posterior",
]

JITTER = 1e-8
"""Added to the diagonal: two points at nearly one place would make the matrix singular in floating point."""
REACH_SPREAD, DEVIATION_SPREAD, NOISE_SPREAD = 0.8, 1.0, 0.4
"""Standard deviations of theta before anything was measured. A handful of points is explained equally well by
pure noise and by no noise at all; a weak prior about the defaults decides until there are more. 0.8 is a
factor of 2.2 either way."""
REACHES = (0.1, 20.0)
"""Octaves within which a reach is fitted. At 0.1 even 9 and 10 threads, 0.15 octaves apart, hardly bear on
each other; at 20 a knob of ten values has hardly any effect."""
LARGEST_DEVIATION, NOISES = 7.4, (0.02, 0.5)
"""Standard deviations within which those of costs and of noise are fitted, of the logarithm. No window is
more exact than 2 %, and a fit must not explain every difference by noise."""
KNOWN_OFFSET = 0.1
"""Standard deviation of a machine's offset where a prior says how all costs vary together."""
SLOPE, OFFSET = 1.0, 0.5
"""Standard deviations of the trend, per octave of load, and of a machine's offset, of the logarithm of costs.
They are not fitted: a few loads and machines would not determine them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SmoothingParameters:
    """What is assumed before anything was measured, and how much work is done."""

    reach: float = 1.33
    """Octaves of a knob's value over which costs are alike."""
    load_reach: float = 1.33
    """Octaves of the load over which the best configurations are alike."""
    deviation: float = 1.0
    """Standard deviation of the logarithm of costs."""
    noise: float = 0.06
    """Relative noise of one window at a known load."""
    prior_deviation: float = 0.3
    """Standard deviation of the logarithm of costs about a prior, such as a simulation's."""
    neural_deviation: float = 0.15
    """The same about the neural estimator, beside what it says itself that it is unsure of."""
    least_deviation: float = 0.05
    """Smallest deviation of costs that a fit may find. Larger ones explore longer: ``docs/estimator.md`` says
    what that is worth, and what it costs a server that is guarded."""
    ceiling: float = 1.0
    """Costs count as at most ``e ** ceiling`` times the least at that load. How bad the bad ones are does not
    matter, and the cliff into overload is no smooth function: it would shorten every reach."""
    optimism: float = 1.0
    """Standard deviations by which the value of a configuration is below its expected cost, where no prior
    says what to expect, no window bears on the load, or the least use is looked for."""
    shared: float = 0.8
    """Correlation of costs on two machines, such as before and after it changed: the kind of server is the
    same."""
    adaptive: bool = True
    """Fit the hyperparameters to what was measured; False keeps them as they are here."""
    points: int = 200
    """Most points that a prediction rests on, those nearest in load; the work grows with their cube."""
    steps: int = 10
    """Most steps of one fit. The next fit begins where this one ended, so few are enough."""

    def __post_init__(self) -> None:
        deviations = (self.deviation, self.prior_deviation, self.neural_deviation, self.least_deviation)
        scales = (self.reach, self.load_reach, *deviations, self.noise, self.ceiling)
        if not (min(*scales, self.points, self.steps) > 0 and 0 <= self.shared <= 1 and self.optimism >= 0):
            raise ValueError(
                "scales and counts must be positive, `0 <= shared <= 1` and `optimism >= 0` must hold, "
                f"but got {self}"
            )


class Points(NamedTuple):
    """What was measured, each configuration at each load once."""

    places: np.ndarray  # (n, knobs + 2) octaves of each knob and of the load; the machine
    logs: np.ndarray  # (n,) mean logarithm of the cost
    windows: np.ndarray  # (n,) in how many it was measured
    numbers: np.ndarray  # (n,) int64, of the configurations
    loadings: np.ndarray | None = None  # (n, k) on what a prior says they have in common; None without it
    leaps: np.ndarray | None = None  # (n,) standard deviations of the part that leaps; None: none does


class Leaps(NamedTuple):
    """How far costs may leap at the places to predict, of which other configurations tell nothing."""

    numbers: np.ndarray  # (m,) int64, of the configurations
    deviations: np.ndarray  # (m,) of the logarithm of the cost


def coordinates(space: KnobSpace) -> np.ndarray:
    """Return where configurations lie, in octaves of their knobs' values.   # (size, knobs)."""
    if not space.knobs:
        return np.empty((space.size, 0))
    axes = [_octaves(knob) for knob in space.knobs]
    return np.stack([axis[space.coordinates[:, i]] for i, axis in enumerate(axes)], axis=1)


def _octaves(knob: Knob) -> np.ndarray:
    """Logarithms to base 2 of a grid; values without one, such as 0 for "off", lie below, an octave apart."""
    grid = np.array(knob.grid)
    above = grid > 0
    if not above.any():
        return np.arange(grid.size, dtype=float)
    octaves = np.zeros(grid.size)
    octaves[above] = np.log2(grid[above])
    below = np.count_nonzero(~above)
    octaves[:below] = octaves[below] - np.arange(below, 0, -1)
    return octaves


def initial_theta(parameters: SmoothingParameters, knobs: int) -> np.ndarray:
    """Return theta before anything was measured.   # (knobs + 3,)."""
    p = parameters
    return np.log([p.reach] * knobs + [p.load_reach, p.deviation, p.noise])


def negative_log_posterior(
    theta: np.ndarray, points: Points, parameters: SmoothingParameters
) -> tuple[float, np.ndarray]:
    """Return how unlikely theta is given what was measured, up to a constant, and the gradient.

    Args:
        theta: The hyperparameters.   # (knobs + 3,)
        points: What was measured.
        parameters: What was assumed before.

    Returns:
        The negative logarithm of the posterior density, at the likeliest mean of the costs; infinite if the
        covariance is singular under these hyperparameters.   # scalar, (knobs + 3,)
    """
    hyper, noise = _hyperparameters(theta, parameters, points), math.exp(2.0 * theta[-1])
    matrix = _with_noise(points, hyper, noise, parameters)
    try:
        factor = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return math.inf, np.zeros(theta.size)
    inverse = np.linalg.inv(factor)
    inverse = inverse.T @ inverse
    alpha = _residual(inverse, points.logs) if points.loadings is None else inverse @ points.logs
    value = 0.5 * float(points.logs @ alpha) + float(np.log(np.diag(factor)).sum())  # eq. 5.8
    weight = inverse - np.outer(alpha, alpha)  # eq. 5.9
    of_noise = 2.0 * noise * float((np.diag(weight) / points.windows).sum())
    gradient = np.append(contract(points.places, weight, hyper), of_noise)
    knobs = theta.size - 3
    spread = np.array([REACH_SPREAD] * (knobs + 1) + [DEVIATION_SPREAD, NOISE_SPREAD])
    away = (theta - initial_theta(parameters, knobs)) / spread
    return value + 0.5 * float(away @ away), 0.5 * gradient + away / spread


def fit(theta: np.ndarray, points: Points, parameters: SmoothingParameters) -> np.ndarray:
    """Return the likeliest hyperparameters near a beginning.   # (knobs + 3,).

    Args:
        theta: Where to begin.   # (knobs + 3,)
        points: What was measured, at least one.
        parameters: What was assumed before, and how many steps to take.
    """
    from scipy.optimize import minimize

    deviations = (parameters.least_deviation, max(parameters.least_deviation, LARGEST_DEVIATION))
    limits = [REACHES] * (theta.size - 2) + [deviations, NOISES]
    found = minimize(
        negative_log_posterior,
        theta,
        args=(points, parameters),
        jac=True,
        method="L-BFGS-B",
        bounds=[(math.log(low), math.log(high)) for low, high in limits],
        options={"maxiter": parameters.steps},
    )
    return np.asarray(found.x) if np.isfinite(found.x).all() and math.isfinite(found.fun) else theta


def posterior(
    theta: np.ndarray,
    points: Points,
    parameters: SmoothingParameters,
    where: np.ndarray,
    *,
    loadings: np.ndarray | None = None,
    leaps: Leaps | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return what costs are expected to be, and how sure that is.

    Args:
        theta: The hyperparameters.   # (knobs + 3,)
        points: What was measured, at least one.
        parameters: What was assumed before.
        where: Places to predict.   # (m, knobs + 2)
        loadings: Of the places, if the points have them; then costs are about 0 before anything is measured,
            not about an unknown mean.   # (m, k)
        leaps: Of the places, if the points have them.

    Returns:
        Mean and standard deviation of the logarithm of the cost.   # (m,), (m,)
    """
    hyper, (logs, ones, across) = _solved(theta, points, parameters, where, loadings=loadings, leaps=leaps)
    prior = hyper.variance + hyper.offset + hyper.slope * where[:, -2] ** 2
    if points.loadings is not None and loadings is not None:
        prior += (loadings**2).sum(axis=1)
    if points.leaps is not None and leaps is not None:
        prior += leaps.deviations**2
    variance = prior - np.einsum("ij,ij->j", across, across)
    if points.loadings is not None:
        return across.T @ logs, np.sqrt(np.maximum(variance, JITTER))
    weight = float(ones @ ones)
    mean = float(ones @ logs) / weight  # of all costs, by generalised least squares (section 2.7)
    expected = mean + across.T @ (logs - mean * ones)
    variance += (1.0 - across.T @ ones) ** 2 / weight  # the mean itself is estimated
    return expected, np.sqrt(np.maximum(variance, JITTER))


def joint_covariance(
    theta: np.ndarray,
    points: Points,
    parameters: SmoothingParameters,
    where: np.ndarray,
    *,
    loadings: np.ndarray | None = None,
    leaps: Leaps | None = None,
) -> np.ndarray:
    """Return how the logarithms of costs vary together, given what was measured.   # (m, m).

    Args:
        theta: As for :func:`posterior`; so are the others.
        points: What was measured, at least one.
        parameters: What was assumed before.
        where: Places, all on one machine.   # (m, knobs + 2)
        loadings: Of the places, if the points have them.   # (m, k)
        leaps: Of the places, if the points have them.
    """
    hyper, (_, ones, across) = _solved(theta, points, parameters, where, loadings=loadings, leaps=leaps)
    matrix = covariance(where, where, hyper)
    if points.loadings is not None and loadings is not None:
        matrix += _in_common(loadings, loadings, where, where, hyper)
    diagonal = np.diag_indices_from(matrix)
    if points.leaps is not None and leaps is not None:
        matrix[diagonal] += leaps.deviations**2
    matrix -= across.T @ across
    if points.loadings is None:
        left = 1.0 - across.T @ ones
        matrix += np.outer(left, left) / float(ones @ ones)  # the mean of all costs is estimated
    matrix[diagonal] = np.maximum(matrix[diagonal], JITTER)
    return matrix


def _solved(
    theta: np.ndarray,
    points: Points,
    parameters: SmoothingParameters,
    where: np.ndarray,
    *,
    loadings: np.ndarray | None,
    leaps: Leaps | None,
) -> tuple[Hyperparameters, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return the constants and, over the factor of the points' covariance: logs, ones, covariances.

    The last are those of the points with the places.   # (n,), (n,), (n, m)
    """
    from scipy.linalg.blas import dtrsm

    hyper = _hyperparameters(theta, parameters, points)
    factor = np.linalg.cholesky(_with_noise(points, hyper, math.exp(2.0 * theta[-1]), parameters))
    across = covariance(points.places, where, hyper)
    if points.loadings is not None and loadings is not None:
        across += _in_common(points.loadings, loadings, points.places, where, hyper)
    if points.leaps is not None and leaps is not None:
        _add_leaps(across, points, where, leaps, parameters)
    right = np.column_stack([points.logs, np.ones(points.logs.size), across])
    # factor @ x = right, by its transpose: BLAS then takes both as they lie in memory, without a copy.
    right = dtrsm(1.0, factor.T, right.T, side=1, overwrite_b=1).T
    return hyper, (right[:, 0], right[:, 1], right[:, 2:])


def _in_common(
    a: np.ndarray, b: np.ndarray, places: np.ndarray, where: np.ndarray, hyper: Hyperparameters
) -> np.ndarray:
    """Return the part of the covariance of two sets of costs that their prior knows.   # (n, m)."""
    common = a @ b.T
    common *= by_machine(places, where, 1.0, hyper.shared)
    return np.asarray(common)


def _add_leaps(
    matrix: np.ndarray, points: Points, where: np.ndarray, leaps: Leaps, parameters: SmoothingParameters
) -> None:
    """Add the part of the covariance that each configuration has alone.   # (n, m), modified in place."""
    assert points.leaps is not None
    alone = Hyperparameters(
        inverse_reach=np.array([1.0 / parameters.load_reach]),
        variance=1.0,
        shared=parameters.shared,
        slope=0.0,
        offset=0.0,
    )
    measured = np.flatnonzero(np.isin(leaps.numbers, points.numbers))
    part = covariance(points.places[:, -2:], where[measured, -2:], alone)
    part *= points.numbers[:, None] == leaps.numbers[measured]
    matrix[:, measured] += part * points.leaps[:, None] * leaps.deviations[measured]


def _hyperparameters(theta: np.ndarray, parameters: SmoothingParameters, points: Points) -> Hyperparameters:
    known = points.loadings is not None  # then the prior says how costs grow with the load
    return Hyperparameters(
        inverse_reach=np.exp(-theta[:-2]),
        variance=math.exp(2.0 * theta[-2]),
        shared=parameters.shared,
        slope=0.0 if known else SLOPE**2,
        offset=(KNOWN_OFFSET if known else OFFSET) ** 2,
    )


def _with_noise(
    points: Points, hyper: Hyperparameters, noise: float, parameters: SmoothingParameters
) -> np.ndarray:
    """Return the covariance of what was measured; n windows have an n-th of the noise.   # (n, n)."""
    matrix = covariance(points.places, points.places, hyper)
    if points.loadings is not None:
        matrix += _in_common(points.loadings, points.loadings, points.places, points.places, hyper)
    if points.leaps is not None:
        _add_leaps(matrix, points, points.places, Leaps(points.numbers, points.leaps), parameters)
    matrix[np.diag_indices_from(matrix)] += noise / points.windows + JITTER
    return matrix


def _residual(inverse: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Return the inverse covariance times what is beyond the mean.   # (n,)."""
    weights = inverse.sum(axis=1)
    return np.asarray(inverse @ (logs - float(weights @ logs) / float(weights.sum())))
