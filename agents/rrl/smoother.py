"""What every configuration is thought to cost at any load: the prior, corrected by all that was measured.

The formulas are those of :mod:`tuner.agents.rrl.smoothing`. Here is what changes with the windows: what was
measured, the fitted reach, and predictions kept until more is learned. A fit may run in a thread of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from threading import Lock

import numpy as np

from tuner.agents.agent import State
from tuner.agents.load_levels import nearest_level
from tuner.agents.log_cost import log_cost
from tuner.agents.rrl.measured import MeasuredWindows, left_on
from tuner.agents.rrl.neural.prior import NeuralPrior
from tuner.agents.rrl.parameters import RRLParameters
from tuner.agents.rrl.prior import LogCosts, Prior
from tuner.agents.rrl.smoothing import (
    Leaps,
    Points,
    SmoothingParameters,
    coordinates,
    fit,
    initial_theta,
    joint_covariance,
    posterior,
)
from tuner.agents.threads import one_blas_thread
from tuner.knobs import KnobSpace

__all__ = ["CANDIDATES", "Belief", "Smoother"]

CANDIDATES = 8192
"""Configurations considered in one decision: predicting these takes tens of milliseconds. A larger space is
sampled, and those that look good are added."""
EXPECTED = 1024
"""How many of these that the prior expects to cost least."""
VISITED = 64
"""Configurations measured last, and as many that cost least, whose neighbours are added."""
REFIT = 24
"""The reach is fitted again when a 24th more windows are known. A fit costs the third power of the points,
and a few windows more hardly move it."""
MOST_BELIEFS = 64
"""Loads whose predictions are kept until more is learned."""

Belief = tuple[np.ndarray, np.ndarray]
"""Mean and standard deviation of the logarithm of costs."""


class Smoother:
    """The logarithms of costs as jointly normal numbers, about what the prior expects.

    Life: :meth:`add` after every window; :meth:`belief` answers from what was learned. In between,
    :meth:`refit` fits the reach, in any thread.

    Args:
        space: The configurations.
        parameters: The constants.

    Attributes:
        measured: What was measured.
        theta: Logarithms of the fitted hyperparameters.
        prior: What costs are expected to be before anything is measured; None without a prior.
        fitted: Windows ever learned from at the last fit; 0 asks for one.
    """

    measured: MeasuredWindows
    theta: np.ndarray
    prior: Prior | None
    fitted: int

    def __init__(self, space: KnobSpace, parameters: RRLParameters) -> None:
        self.space = space
        self.parameters = parameters
        self._places = coordinates(space)
        self._present = State(level=0, configuration=0)
        self._lock = Lock()
        self._beliefs: dict[tuple[int, float], Belief] = {}
        self._forget(None)

    @property
    def informed(self) -> bool:
        """Whether a prior says what to expect."""
        return self.prior is not None and self.prior.ready

    @property
    def neural(self) -> bool:
        """Whether the neural estimator is what says so."""
        return isinstance(self.prior, NeuralPrior) and self.informed

    @property
    def constants(self) -> SmoothingParameters:
        """The constants of the process; with a prior it describes the difference to that, and varies less."""
        p = self.parameters.smoothing
        if not self.informed:
            return p
        return replace(p, deviation=p.neural_deviation if self.neural else p.prior_deviation)

    def load(self, state: State) -> float:
        """Return the load of a state, octaves: the logarithm of the rate to base 2."""
        rate = state.rate if state.rate else self.parameters.levels.rate(state.level)
        return math.log2(max(rate, self.parameters.levels.lowest))

    def windows(self, level: int) -> int:
        """Return how many windows were learned from at a level."""
        return self.measured.visits(level).total()

    def bears_on(self, level: int) -> bool:
        """Whether a prior or any measurement says something about a level."""
        return (
            self.informed or bool(self.windows(level)) or (self.parameters.carry and len(self.measured) > 0)
        )

    def corrected(self, level: int) -> bool:
        """Whether any measurement corrects what the prior says of a level, or is all that is known of it."""
        return self.measured.has_points(None if self.parameters.carry else level)

    def add(self, state: State, configuration: int, cost: float, changed: int | None) -> None:
        """Take in what a configuration cost in one window.

        Args:
            state: Its load.
            configuration: Its number.
            cost: Of the window.
            changed: Windows, this one included, since the machine changed; None: it has not.
        """
        with self._lock:
            self.measured.add(state.level, self.load(state), configuration, cost)
            if changed is not None:
                self.measured.begin_era(changed)
                self.fitted = 0  # which configurations are alike may have changed with the machine
            self._present = state
            self._beliefs = {}

    def surprise(self, state: State, configuration: int, cost: float) -> float:
        """Return by how many standard deviations the logarithm of a window's cost is above what was expected.

        Costs above the ceiling are cut off, as they are for predictions. A cost beyond it could not be
        predicted, so it is no sign that the machine has changed.
        """
        mean, deviation = self.predict(state, np.array([configuration]))
        most = self.measured.least(self.load(state), state.level) + self.parameters.smoothing.ceiling
        error = min(log_cost(cost), most) - float(mean[0])
        return error / math.hypot(float(deviation[0]), math.exp(self.theta[-1]))  # of prediction, of window

    def watch(self, number: int, seen: Mapping[str, float]) -> None:
        """Let the prior learn from what a window of a configuration showed beside its cost."""
        with self._lock:
            knew = self.informed
            if self.prior is None or not self.prior.watch(number, seen):
                return
            self._beliefs = {}
            # From now on the process only describes the difference to the prior.
            if self.informed and not knew:
                self.theta, self.fitted = initial_theta(self.constants, len(self.space.knobs)), 0

    def move(self, cores: float) -> bool:
        """Expect what the server does with this many cores; returns whether it had others.

        What was measured counts as measured on a similar machine then.
        """
        with self._lock:
            moved = isinstance(self.prior, NeuralPrior) and self.prior.move(cores)
            if moved:
                self.measured.begin_era(0)
                self.fitted, self._beliefs = 0, {}
            return moved

    def start_from(self, prior: Prior) -> None:
        """Forget everything measured and start from a prior."""
        with self._lock:
            self._forget(prior)

    def restore(self, prior: Prior | None, measured: MeasuredWindows, theta: np.ndarray, fitted: int) -> None:
        """Take over what another process had learned; the attributes of the class say what each is."""
        with self._lock:
            self._forget(prior)
            self.measured, self.theta, self.fitted = measured, theta.copy(), fitted

    def nothing_measured(self) -> MeasuredWindows:
        """Return no windows of this space."""
        return MeasuredWindows(self._places, self.parameters.memory)

    def _forget(self, prior: Prior | None) -> None:
        """Forget everything but a prior."""
        self.prior = prior
        self.measured = self.nothing_measured()
        self.theta = initial_theta(self.constants, len(self.space.knobs))
        self.fitted = 0
        self._beliefs = {}

    def candidates(self, state: State, configurations: np.ndarray) -> np.ndarray:
        """Return the configurations to predict: all or, of many, a sample and those that look good.

        These are what the prior expects to cost least, and the neighbours of those measured at the level, or
        at the nearest one.

        Returns:
            Their numbers.   # (n,) int64
        """
        if configurations.size <= CANDIDATES:
            return configurations
        stride = -(-configurations.size // CANDIDATES)
        # Another sample in every window: all configurations get their turn.
        chosen = [configurations[self.measured.total % stride :: stride]]
        if self.measured.levels:
            level = nearest_level(self.measured.levels, state.level)
            chosen += [self.space.region(c, 1.0) for c in self.measured.notable(level, VISITED)]
        if self.informed:
            expected = self._prior(state).mean[configurations]
            chosen.append(configurations[np.argsort(expected, kind="stable")[:EXPECTED]])
        return np.intersect1d(np.concatenate(chosen), configurations)

    def belief(self, state: State, configurations: np.ndarray) -> Belief:
        """Return what :meth:`predict` does; for small spaces from a cache that every window empties."""
        if self.space.size > CANDIDATES:
            return self.predict(state, configurations)
        key, beliefs = (state.level, self.load(state)), self._beliefs
        if key not in beliefs:
            if len(beliefs) >= MOST_BELIEFS:
                beliefs.clear()
            beliefs[key] = self.predict(state, np.arange(self.space.size))
        mean, deviation = beliefs[key]
        return mean[configurations], deviation[configurations]

    def predict(self, state: State, configurations: np.ndarray) -> Belief:
        """Return mean and standard deviation of the logarithm of costs.   # (n,), (n,)."""
        prior = self._prior(state)
        mean, loadings = self._prior_mean(prior, configurations), prior.loadings[configurations]
        points = self._points(state)
        if not points.logs.size:
            if not loadings.size:  # nothing says how unsure the prior is
                return mean, np.full(configurations.size, self.constants.deviation)
            return mean, prior.deviation[configurations]
        where, leaps = self._places_of(state, configurations), _leaps_of(prior, configurations)
        with one_blas_thread():
            above, deviation = posterior(
                self.theta, points, self.constants, where, loadings=loadings, leaps=leaps
            )
        return mean + above, deviation

    def joint(self, state: State, configurations: np.ndarray) -> np.ndarray:
        """Return how the logarithms of costs vary together, once anything was measured.   # (n, n)."""
        prior, points = self._prior(state), self._points(state)
        where, leaps = self._places_of(state, configurations), _leaps_of(prior, configurations)
        loadings = prior.loadings[configurations]
        with one_blas_thread():
            return joint_covariance(self.theta, points, self.constants, where, loadings=loadings, leaps=leaps)

    @property
    def noise(self) -> float:
        """Variance of the logarithm of what one window shows of a cost."""
        return math.exp(2.0 * self.theta[-1])

    def _prior(self, state: State) -> LogCosts:
        return self._prior_costs(self.load(state), left_on(self.measured.machine(state.level)))

    def _places_of(self, state: State, configurations: np.ndarray) -> np.ndarray:
        """Return knobs, load and machine of configurations under a load.   # (n, knobs + 2)."""
        count = configurations.size
        now = [np.full((count, 1), self.load(state)), np.full((count, 1), self.measured.machine(state.level))]
        return np.concatenate([self._places[configurations], *now], axis=1)

    def _points(self, state: State) -> Points:
        """Return the measured points that bear on a state, their logarithms less the mean of the prior."""
        smoothing, load = self.parameters.smoothing, self.load(state)
        level = None if self.parameters.carry else state.level
        points = self.measured.points(load, smoothing.ceiling, smoothing.points, level)
        if not (self.informed and points.logs.size):
            return points
        assert self.prior is not None, "it is informed"
        priors = [self.prior.at(at, left_on(machine)) for at, machine in points.places[:, -2:].tolist()]
        measured = list(zip(priors, points.numbers.tolist(), strict=True))
        means = np.array([self._prior_mean(prior, c) for prior, c in measured])
        loadings = np.array([prior.loadings[c] for prior, c in measured])
        leaps = [prior.leap[c] for prior, c in measured if prior.leap is not None]
        return points._replace(
            logs=points.logs - means,
            loadings=loadings if loadings.size else None,
            leaps=np.array(leaps) if leaps else None,
        )

    def _prior_costs(self, load: float, left: float) -> LogCosts:
        """Return the expected costs of all configurations by the prior; zeros without one.

        Args:
            load: Octaves.
            left: Share of the machine that its other processes leave.
        """
        if self.prior is None or not self.prior.ready:
            return LogCosts(
                np.zeros(self.space.size),
                np.zeros(self.space.size),
                np.empty((self.space.size, 0)),
            )
        return self.prior.at(load, left)

    def _prior_mean(self, prior: LogCosts, configurations: np.ndarray | int) -> np.ndarray:
        """Return the prior's mean for configurations, under the same ceiling as measured costs.   # (n,)."""
        most = prior.mean.min() + self.parameters.smoothing.ceiling
        return np.asarray(np.minimum(prior.mean[configurations], most))

    def refit(self, requests: int) -> None:  # noqa: ARG002 - one fit serves all windows that came meanwhile
        """Fit the hyperparameters to all measurements, unless hardly any came since the last fit."""
        with self._lock:
            points, windows = self._points(self._present), self.measured.total
            fitted_to = self.measured, self.measured.era, self.informed
        if windows < self.fitted * (1.0 + 1.0 / REFIT):
            return
        with one_blas_thread():
            theta = fit(self.theta, points, self.constants)
        with self._lock:
            if fitted_to == (self.measured, self.measured.era, self.informed):  # else the next request fits
                self.theta, self.fitted, self._beliefs = theta, windows, {}


def _leaps_of(prior: LogCosts, configurations: np.ndarray) -> Leaps | None:
    return None if prior.leap is None else Leaps(configurations, prior.leap[configurations])
