"""Gaussian smoothing of measured costs over configurations and loads: RRL's region without a hard edge.

Beyond the paper. A region of fixed size asks how far a measurement may be trusted; here that is *fitted*: the
costs' logarithms are a Gaussian process (Matern 5/2) over the knobs and the load, with a reach of its own per
knob. The reach that makes what was measured most likely shrinks where neighbours turned out to differ and
grows where they did not (marginal likelihood, Rasmussen and Williams, "Gaussian processes for machine
learning", 2006, sections 2.2, 2.7 and 5.4).

Distances are in octaves of the knobs' values: one thread or two matters more than nine or ten.

All functions here are pure. Parameters are a vector: the logarithms of each knob's reach, the load's reach,
the standard deviation of costs, and that of the noise of one window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tuner.agents.rrl.covariance import Law, contract, covariance
from tuner.knobs import Knob, KnobSpace

__all__ = ["Points", "SmoothingParameters", "coordinates", "fit", "misfit", "posterior", "start"]

JITTER = 1e-8
"""Added to the diagonal, so that it can be factorised."""
REACH_SPREAD, DEVIATION_SPREAD, NOISE_SPREAD = 0.8, 1.0, 0.4
"""Standard deviations of the parameters' logarithms before anything was measured."""
REACHES, DEVIATIONS, NOISES = (0.1, 20.0), (0.05, 7.4), (0.02, 0.5)
"""Within which they are fitted: octaves, and logarithms of the cost."""


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
    """Relative noise of one window, its load being known."""
    prior_deviation: float = 0.3
    """Standard deviation of the logarithm of costs about a prior, such as a simulation's."""
    ceiling: float = 1.0
    """Costs count as at most ``e ** ceiling`` times the least at that load: how bad the bad ones are does not
    matter, and a cliff is no smooth function."""
    optimism: float = 1.0
    """Standard deviations that the value of a configuration is below what it is expected to cost."""
    shared: float = 0.8
    """Correlation of what is measured with what was before the machine changed."""
    adaptive: bool = True
    """Fit the reach (and all else) to what was measured; False keeps it as it is here."""
    points: int = 200
    """Most points that a prediction rests on: those nearest in load, the work grows with their cube."""
    steps: int = 10
    """Most steps of one fit."""

    def __post_init__(self) -> None:
        scales = (self.reach, self.load_reach, self.deviation, self.prior_deviation, self.noise, self.ceiling)
        if not (min(*scales, self.points, self.steps) > 0 and 0 <= self.shared <= 1 and self.optimism >= 0):
            raise ValueError(
                "scales and counts must be positive, `0 <= shared <= 1` and `optimism >= 0` must hold, "
                f"but got {self}"
            )


class Points(NamedTuple):
    """What was measured, each configuration at each load once."""

    places: np.ndarray  # (n, knobs + 2) octaves of each knob and of the load; the era
    logs: np.ndarray  # (n,) mean logarithm of the cost
    windows: np.ndarray  # (n,) in how many it was measured
    numbers: np.ndarray  # (n,) int64, of the configurations


def coordinates(space: KnobSpace) -> np.ndarray:
    """Return where configurations lie, in octaves of their knobs' values.   # (size, knobs)."""
    if not space.knobs:
        return np.empty((space.size, 0))
    axes = [_octaves(knob) for knob in space.knobs]
    return np.stack([axis[space.coordinates[:, i]] for i, axis in enumerate(axes)], axis=1)


def _octaves(knob: Knob) -> np.ndarray:
    """Logarithms to base 2 of a grid; what is not above 0 lies one octave below the rest, step by step."""
    grid = np.array(knob.grid)
    above = grid > 0
    if not above.any():
        return np.arange(grid.size, dtype=float)
    octaves = np.zeros(grid.size)
    octaves[above] = np.log2(grid[above])
    below = np.count_nonzero(~above)
    octaves[:below] = octaves[below] - np.arange(below, 0, -1)
    return octaves


def start(parameters: SmoothingParameters, knobs: int) -> np.ndarray:
    """Return the parameters as a vector, before anything was measured.   # (knobs + 3,)."""
    p = parameters
    return np.log([p.reach] * knobs + [p.load_reach, p.deviation, p.noise])


def misfit(theta: np.ndarray, points: Points, parameters: SmoothingParameters) -> tuple[float, np.ndarray]:
    """Return how unlikely parameters are given what was measured, up to a constant, and the gradient.

    Args:
        theta: The vector of parameters.   # (knobs + 3,)
        points: What was measured.
        parameters: What was assumed before.

    Returns:
        The negative logarithm of posterior density (mean of the costs profiled out); infinite if the points
        cannot be told apart under these parameters.   # scalar, (knobs + 3,)
    """
    law, noise = _law(theta, parameters), math.exp(2.0 * theta[-1])
    matrix = _with_noise(points, law, noise)
    try:
        factor = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return math.inf, np.zeros(theta.size)
    inverse = np.linalg.inv(factor)
    inverse = inverse.T @ inverse
    alpha = _residual(inverse, points.logs)
    value = 0.5 * float(points.logs @ alpha) + float(np.log(np.diag(factor)).sum())
    weight = inverse - np.outer(alpha, alpha)
    gradient = np.empty(theta.size)
    contract(points.places, weight, law, gradient[:-1])
    gradient[-1] = 2.0 * noise * float((np.diag(weight) / points.windows).sum())
    knobs = theta.size - 3
    spread = np.array([REACH_SPREAD] * (knobs + 1) + [DEVIATION_SPREAD, NOISE_SPREAD])
    away = (theta - start(parameters, knobs)) / spread
    return value + 0.5 * float(away @ away), 0.5 * gradient + away / spread


def fit(theta: np.ndarray, points: Points, parameters: SmoothingParameters) -> np.ndarray:
    """Return the likeliest parameters near a beginning.   # (knobs + 3,).

    Args:
        theta: Where to begin.   # (knobs + 3,)
        points: What was measured, at least one.
        parameters: What was assumed before, and how many steps to take.
    """
    from scipy.optimize import minimize

    limits = [REACHES] * (theta.size - 2) + [DEVIATIONS, NOISES]
    found = minimize(
        misfit,
        theta,
        args=(points, parameters),
        jac=True,
        method="L-BFGS-B",
        bounds=[(math.log(low), math.log(high)) for low, high in limits],
        options={"maxiter": parameters.steps},
    )
    return np.asarray(found.x) if np.isfinite(found.x).all() and math.isfinite(found.fun) else theta


def posterior(
    theta: np.ndarray, points: Points, parameters: SmoothingParameters, where: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return what costs are expected to be, and how sure that is.

    Args:
        theta: The vector of parameters.   # (knobs + 3,)
        points: What was measured, at least one.
        parameters: What was assumed before.
        where: Points to be told about.   # (m, knobs + 2)

    Returns:
        Mean and standard deviation of the logarithm of the cost.   # (m,), (m,)
    """
    from scipy.linalg import solve_triangular

    law = _law(theta, parameters)
    factor = np.linalg.cholesky(_with_noise(points, law, math.exp(2.0 * theta[-1])))
    across = np.empty((points.logs.size, where.shape[0]))
    covariance(points.places, where, law, across)
    right = np.column_stack([points.logs, np.ones(points.logs.size), across])
    right = solve_triangular(factor, right, lower=True, check_finite=False, overwrite_b=True)
    logs, ones, across = right[:, 0], right[:, 1], right[:, 2:]
    weight = float(ones @ ones)
    mean = float(ones @ logs) / weight
    expected = mean + across.T @ (logs - mean * ones)
    unsure = law.variance + law.offset + law.slope * where[:, -2] ** 2 - (across * across).sum(axis=0)
    unsure += (1.0 - across.T @ ones) ** 2 / weight  # of the mean itself
    return expected, np.sqrt(np.maximum(unsure, JITTER))


def _law(theta: np.ndarray, parameters: SmoothingParameters) -> Law:
    return Law(
        inverse_reach=np.exp(-theta[:-2]),
        variance=math.exp(2.0 * theta[-2]),
        shared=parameters.shared,
        slope=SLOPE**2,
        offset=OFFSET**2,
    )


SLOPE, OFFSET = 1.0, 0.5
"""Standard deviations of the logarithm of costs per octave of load, and of an era against another."""


def _with_noise(points: Points, law: Law, noise: float) -> np.ndarray:
    matrix = np.empty((points.logs.size, points.logs.size))
    covariance(points.places, points.places, law, matrix)
    matrix[np.diag_indices_from(matrix)] += noise / points.windows + JITTER
    return matrix


def _residual(inverse: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """The inverse covariance times what is beyond the mean.   # (n,)."""
    weights = inverse.sum(axis=1)
    return np.asarray(inverse @ (logs - float(weights @ logs) / float(weights.sum())))
