"""The default perception: what each configuration is thought to cost, from all that was measured.

Every measurement teaches about all configurations and loads, the nearer the more. What becomes of the parts
of the paper's perception (:mod:`tuner.agents.rrl.table.perception`), and why:

* *Region.* A Gaussian process with a length scale per knob and for the load, its reach, takes the place of a
  ball of fixed size (:mod:`tuner.agents.rrl.smoothing`): how far a measurement may be trusted differs between
  knobs and models, so it is fitted to what was measured. ``smoothing.adaptive = False`` keeps it fixed.
* *Estimation function.* A network that was trained beforehand on random simulated servers says what to expect
  and what the configurations of a server have in common (:mod:`tuner.agents.rrl.neural`). It is the process's
  prior: the process learns by how much this server differs, and has the last word.
* *Risk.* Where the estimator says how dear a configuration may be, gambles are not explored
  (:mod:`tuner.agents.rrl.risk`).
* *Learning rate.* The posterior weighs a measurement against what was thought before by how sure either is,
  as a Kalman filter does; for a configuration measured alone that is 1/t.
* *Q.* The expected cost less ``smoothing.optimism`` standard deviations. Configurations about which little is
  known are tried before those known to be dear, and exploration ends where nothing promises more.
* *Load levels.* What is learned at one load holds at others as far as the reach of the load goes (``carry``).
  The load is the window's own rate where it is known: a level spans a quarter, and near overload costs rise
  steeply within it.
* *Neighbours.* A level also says how much of the machine foreign processes take. The prior expects what a
  server does on the cores that are left: a busy neighbour asks for other configurations. What was measured
  beside other neighbours counts as measured on a similar machine, exactly as after a drift.
* *A start.* In the network's place a calibrated simulation or another server may give the prior
  (:mod:`tuner.agents.rrl.prior`).
* *The next load.* Where the load rises now and then, what a configuration costs until the windows have shown
  the higher load counts with the chance of it (:mod:`tuner.agents.rrl.rise`).
* *Drift.* When predictions stay wrong, the machine has changed and a new era begins
  (:mod:`tuner.agents.rrl.drift`). What was measured before then counts as measured on a similar machine: it
  is correlated with what is measured now, and loses where they differ.

A known weakness without a prior: exploration may end too early. A configuration far from all measured ones is
taken to cost about their mean, with a fitted deviation that can be too small; on the synthetic valley of
``tests/agents/rrl/test_perception.py`` the agent stays at 1.1 to 2.1 times the best. Neither a higher
``smoothing.ceiling`` nor a floor under the deviation cured it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from threading import Lock

import numpy as np

from tuner.agents.agent import State
from tuner.agents.load_levels import SPAN, neighbours
from tuner.agents.log_cost import SMALLEST_COST, log_cost
from tuner.agents.policy_file import StoredArrays
from tuner.agents.rrl.drift import DriftDetector
from tuner.agents.rrl.measured import ERA_SPAN, MeasuredWindows, left_on
from tuner.agents.rrl.neural.prior import NeuralPrior
from tuner.agents.rrl.parameters import RRLParameters
from tuner.agents.rrl.prior import InterpolatedPrior, LogCosts, Prior
from tuner.agents.rrl.rise import CARRIED
from tuner.agents.rrl.risk import bearable, safe
from tuner.agents.rrl.smoothing import (
    Leaps,
    Points,
    SmoothingParameters,
    coordinates,
    fit,
    initial_theta,
    posterior,
)
from tuner.agents.threads import one_blas_thread
from tuner.agents.trainer import Trainer
from tuner.knobs import KnobSpace

__all__ = ["SmoothPerception"]

CANDIDATES = 8192
"""Configurations considered in one decision: predicting these takes tens of milliseconds. A larger space is
sampled, and the neighbours of measured configurations are added."""
VISITED = 64
"""Configurations measured last, and as many that cost least, whose neighbours are added."""
REFIT = 24
"""The reach is fitted again when a 24th more windows are known. A fit costs the third power of the points,
and a few windows more hardly move it."""
KNOWN = 0.6
"""A cost counts as known once its standard deviation is below this share of what it was before any
measurement: a configuration that nothing measured bears on keeps the whole of it."""
MOST_BELIEFS = 64
"""Loads whose predictions are kept until more is learned."""
SETTLED = 2
"""Windows of a configuration after which the next may show drift. A prediction that rests on one window, or
on neighbours alone, is wrong often enough on a machine that has not changed."""
LARGEST_LOGARITHM = 50.0
"""Largest absolute value of a fitted parameter in a saved policy, ..."""
LARGEST_LOAD = 64.0
"""... of a load, in octaves, ..."""
LARGEST_LEVEL = 100 * SPAN
"""... and of a load level."""

Belief = tuple[np.ndarray, np.ndarray]
"""Mean and standard deviation of the logarithm of costs."""


class SmoothPerception:
    """What configurations are thought to cost, at any load.

    Life: :meth:`learn` after every window; :meth:`values`, :meth:`cautious` and :meth:`costs` answer from
    what was learned. In between, the trainer fits the reach.

    Args:
        space: The configurations.
        parameters: The constants.
        synchronous: Fit the reach inside :meth:`learn`.

    Attributes:
        measured: What was measured.
        theta: Logarithms of the fitted hyperparameters.
        prior: What costs are expected to be before anything is measured; None without a prior.
        drift: Watches whether predictions come true.
        fitted: Windows ever learned from at the last fit; 0 asks for one.
        trainer: Fits the reach; its ``background`` may change between windows.
    """

    def __init__(self, space: KnobSpace, parameters: RRLParameters, *, synchronous: bool = False) -> None:
        self.space = space
        self.parameters = parameters
        self.trainer = Trainer(self._fit, "rrl-smoother", background=not synchronous)
        self._places = coordinates(space)
        self._present = State(level=0, configuration=0)
        self._lock = Lock()
        self._beliefs: dict[tuple[int, float], Belief] = {}
        self._forget(None)

    def learn(self, state: State, configuration: int, cost: float, next_state: State) -> None:  # noqa: ARG002
        """Take in what a configuration cost in one window."""
        load, since = self._load(state), None
        if self.parameters.detect_drift and self.measured.since(configuration, load, state.level) >= SETTLED:
            mean, deviation = self._predict(state, np.array([configuration]))
            error = min(log_cost(cost), self._most(state)) - float(mean[0])
            spread = math.hypot(float(deviation[0]), math.exp(self.theta[-1]))  # of prediction and of window
            since = self.drift.add(error / spread, self.measured.total)
        with self._lock:
            self.measured.add(state.level, load, configuration, cost)
            if since is not None:
                self.measured.begin_era(self.measured.total - since)
                self.fitted = 0  # which configurations are alike may have changed with the machine
            self._present = state
            self._beliefs = {}
        if self.parameters.smoothing.adaptive:
            self.trainer.request()

    def _most(self, state: State) -> float:
        """Return what the logarithm of a cost counts at most at a load, as in what predictions rest on.

        A cost beyond it was not predicted, and is no sign that the machine has changed.
        """
        return self.measured.least(self._load(state), state.level) + self.parameters.smoothing.ceiling

    def windows(self, level: int) -> int:
        """Return how many windows were learned from at a level."""
        return self.measured.visits(level).total()

    def values(self, state: State, configurations: np.ndarray) -> np.ndarray:
        """Return optimistic costs, by which to explore; infinite for what should not be tried.   # (n,)."""
        values = np.full(self.space.size, np.inf)
        if not self._has_evidence(state.level):
            # Nothing is known: first measure the configuration in force, as any other might be worse.
            here = configurations == state.configuration
            return np.asarray(np.where(here | ~here.any(), 1.0, np.inf))
        candidates = self._candidates(state.level, configurations)
        mean, deviation = self._belief(state, candidates)
        optimistic = np.exp(self._optimistic_logs(state, mean, deviation))
        optimistic[~self._explorable(state, mean, deviation)] = np.inf
        values[candidates] = optimistic + self._cost_of_rise(state, candidates)
        return np.asarray(values[configurations])

    def _explorable(self, state: State, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        """Return which configurations may be explored, one at least.   # (n,) bool.

        Args:
            state: The load level.
            mean: Of the logarithm of each cost.   # (n,)
            deviation: Likewise.   # (n,)
        """
        tried, caution = np.ones(mean.size, dtype=bool), self.parameters.caution
        if caution is not None:
            tried = safe(mean, deviation, caution)
        if isinstance(self.prior, NeuralPrior) and self._neural:
            worst = (mean + deviation)[tried]
            tried[tried] = bearable(worst, self.prior.broken, self.windows(state.level))
        return tried

    def _optimistic_logs(self, state: State, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        """Return the logarithms of optimistic costs, from mean and deviation of the logarithms.   # (n,)."""
        if self._neural and self.windows(state.level) <= 1:
            # Hardly anything was measured at this load: be pessimistic, so that the first step is no gamble.
            # A configuration that keeps the SLO is not left for one that may break it.
            return np.asarray(mean + deviation)
        return np.asarray(mean - self.parameters.smoothing.optimism * deviation)

    def cautious(self, state: State, configurations: np.ndarray) -> np.ndarray:
        """Return expected costs with one standard deviation added; NaN if nothing is known.   # (n,)."""
        values = np.full(self.space.size, np.nan)
        if self._has_evidence(state.level):
            candidates = self._candidates(state.level, configurations)
            mean, deviation = self._belief(state, candidates)
            values[candidates] = np.exp(mean + deviation) + self._cost_of_rise(state, candidates)
        return np.asarray(values[configurations])

    def _cost_of_rise(self, state: State, configurations: np.ndarray) -> np.ndarray:
        """Return the expected extra cost of still running each configuration when the load rises.   # (n,).

        It is 0 for the best at the higher load, and for all where no rise is to be expected.
        """
        prospect = self.measured.prospect(self._load(state))
        if prospect is None:
            return np.zeros(configurations.size)
        then = State(level=prospect.level, configuration=state.configuration, rate=2.0**prospect.load)
        mean, deviation = self._belief(then, configurations)
        worst = np.exp(mean + deviation)
        return np.asarray(CARRIED * prospect.chance * (worst - worst.min()))

    def costs(self, level: int) -> np.ndarray:
        """Return the expected cost of every configuration; NaN where nothing bears on it.   # (size,)."""
        costs = np.full(self.space.size, np.nan)
        if self.windows(level) or self.informed:
            candidates = self._candidates(level, self.space.distinct)
            mean, deviation = self._belief(State(level=level, configuration=0), candidates)
            known = self.informed | (deviation < KNOWN * self._smoothing.deviation)
            costs[candidates[known]] = np.exp(mean[known])
        return np.asarray(costs[self.space.canonical])

    @property
    def informed(self) -> bool:
        """Whether a prior says what to expect."""
        return self.prior is not None and self.prior.ready

    def belief(self, state: State) -> Belief:
        """Return mean and standard deviation of the logarithm of each cost.   # (size,) each."""
        mean, deviation = self._belief(state, self.space.canonical)
        return mean, deviation

    def basis(self, state: State, configuration: int) -> str:
        """Return in words what the expected cost of a configuration rests on; empty without a prior."""
        if self.prior is None or not self.prior.ready:
            return ""
        here, unlike = len(self.measured), self.unlike(state)
        origin = self.prior.origin + (f" on servers unlike this one in {', '.join(unlike)}" if unlike else "")
        if self.measured.since(configuration, self._load(state), state.level):
            return f"{origin}, and measured here"
        return f"{origin}, corrected by {here} window{'s' * (here > 1)} here" if here else origin

    def unlike(self, state: State) -> tuple[str, ...]:
        """Return in which respects this server is unlike all that the prior learned from."""
        if self.prior is None or not self.prior.ready:
            return ()
        return self.prior.unlike(self._load(state), left_on(self.measured.machine(state.level)))

    def scale(self, state: State, values: np.ndarray) -> float:  # noqa: ARG002 - a table needs the state
        """Return the least value, to which a relative temperature refers."""
        return max(float(values.min()), SMALLEST_COST)

    def transfer(self) -> None:
        """Make what was learned the prior for another server; see :meth:`RRL.transfer`.

        Loads that only the present prior knows, from an earlier training, stay.
        """
        levels, grid = self.measured.levels, self.parameters.levels
        if not levels:
            return
        least = min(map(neighbours, levels))  # a prior has one machine: the one shared least
        states = [State(level=level, configuration=0) for level in levels if neighbours(level) == least]
        measured, width = [self._load(state) for state in states], math.log2(grid.ratio)
        for load in self.prior.loads.tolist() if isinstance(self.prior, InterpolatedPrior) else ():
            if min(abs(load - other) for other in measured) >= width:
                level = grid.level(2.0**load) + SPAN * least
                states.append(State(level=level, configuration=0, rate=2.0**load))
        states.sort(key=self._load)
        everything = np.arange(self.space.size)
        logs = np.array([self._predict(state, everything)[0] for state in states])
        self.start_from(InterpolatedPrior(np.array([self._load(state) for state in states]), logs))

    def start_from(self, prior: Prior) -> None:
        """Forget everything measured and start from a prior."""
        with self._lock:
            self._forget(prior)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything learned as arrays, which :meth:`restore` reads."""
        drift, measured = self.drift, self.measured
        counts = [measured.total, measured.era, self.fitted, drift.above_since, drift.below_since]
        arrays = {
            "windows": measured.rows(),
            "theta": self.theta,
            "counts": np.array(counts),
            "drift": np.array([drift.above, drift.below]),
        }
        if self.prior is not None:
            arrays |= self.prior.arrays()
        return arrays

    def restore(self, arrays: StoredArrays) -> None:
        """Take over what :meth:`arrays` returned.

        Raises:
            ValueError: A value is out of range.
            StorageError: An array is missing or of another shape.
        """
        size, knobs = self.space.size, len(self.space.knobs)
        rows, theta = arrays.take("windows", (None, 5)), arrays.take("theta", (knobs + 3,))
        counts, sums = arrays.take("counts", (5,), "i"), arrays.take("drift", (2,))
        total, era, fitted, above_since, below_since = map(int, counts)
        levels, loads, numbers, costs, eras = rows.T
        inside = (numbers >= 0) & (numbers < size) & (costs >= 0) & (eras >= 0) & (eras <= era)
        inside &= (np.abs(levels) <= LARGEST_LEVEL) & (np.abs(loads) <= LARGEST_LOAD) & (era < ERA_SPAN)
        finite = all(np.isfinite(array).all() for array in (rows, theta, sums))
        if not (finite and inside.all() and (np.abs(theta) < LARGEST_LOGARITHM).all() and total >= len(rows)):
            raise ValueError("its windows have values out of range")
        with self._lock:
            self._forget(InterpolatedPrior.stored(arrays, size) or NeuralPrior.stored(arrays, self.space))
            self.measured.restore(rows, era, total)
            self.theta, self.fitted = theta.copy(), fitted
            self.drift.above, self.drift.below = map(float, sums)
            self.drift.above_since, self.drift.below_since = above_since, below_since

    def watch(self, number: int, seen: Mapping[str, float]) -> None:
        """Let the prior learn from what a window of a configuration showed beside its cost."""
        with self._lock:
            knew = self.informed
            if self.prior is None or not self.prior.watch(number, seen):
                return
            self._beliefs = {}
            # From now on the process only describes the difference to the prior.
            if self.informed and not knew:
                self.theta, self.fitted = initial_theta(self._smoothing, len(self.space.knobs)), 0

    def move(self, cores: float) -> None:
        """Expect what the server does with this many cores; what was measured was so on a similar machine."""
        with self._lock:
            if isinstance(self.prior, NeuralPrior) and self.prior.move(cores):
                self.measured.begin_era(0)
                self.fitted, self._beliefs = 0, {}

    def _forget(self, prior: Prior | None) -> None:
        """Forget everything but a prior."""
        self.prior = prior
        self.measured = MeasuredWindows(self._places, self.parameters.memory)
        self.theta = initial_theta(self._smoothing, len(self.space.knobs))
        self.drift = DriftDetector(self.parameters.drift)
        self.fitted = 0
        self._beliefs = {}

    @property
    def _smoothing(self) -> SmoothingParameters:
        """The constants of the process; with a prior it describes the difference to that, and varies less."""
        p = self.parameters.smoothing
        if not self.informed:
            return p
        return replace(p, deviation=p.neural_deviation if self._neural else p.prior_deviation)

    @property
    def _neural(self) -> bool:
        return isinstance(self.prior, NeuralPrior) and self.informed

    def _load(self, state: State) -> float:
        """Return the load of a state, octaves: the logarithm of the rate to base 2."""
        rate = state.rate if state.rate else self.parameters.levels.rate(state.level)
        return math.log2(max(rate, self.parameters.levels.lowest))

    def _has_evidence(self, level: int) -> bool:
        """Whether a prior or any measurement says something about a level."""
        return (
            self.informed or bool(self.windows(level)) or (self.parameters.carry and len(self.measured) > 0)
        )

    def _candidates(self, level: int, configurations: np.ndarray) -> np.ndarray:
        """Return the configurations to predict: all or, of many, a sample and neighbours of measured ones.

        Returns:
            Their numbers.   # (n,) int64
        """
        if configurations.size <= CANDIDATES:
            return configurations
        stride = -(-configurations.size // CANDIDATES)
        # Another sample in every window: all configurations get their turn.
        sample = configurations[self.measured.total % stride :: stride]
        near = [self.space.region(c, 1.0) for c in self.measured.notable(level, VISITED)]
        return np.intersect1d(np.concatenate([sample, *near]), configurations)

    def _belief(self, state: State, configurations: np.ndarray) -> Belief:
        """Return what :meth:`_predict` does; for small spaces from a cache that every window empties."""
        if self.space.size > CANDIDATES:
            return self._predict(state, configurations)
        key, beliefs = (state.level, self._load(state)), self._beliefs
        if key not in beliefs:
            if len(beliefs) >= MOST_BELIEFS:
                beliefs.clear()
            beliefs[key] = self._predict(state, np.arange(self.space.size))
        mean, deviation = beliefs[key]
        return mean[configurations], deviation[configurations]

    def _predict(self, state: State, configurations: np.ndarray) -> Belief:
        """Return mean and standard deviation of the logarithm of costs.   # (n,), (n,)."""
        smoothing, load, theta = self._smoothing, self._load(state), self.theta
        points = self._points(state)
        prior = self._prior_costs(load, left_on(self.measured.machine(state.level)))
        mean, loadings = self._prior_mean(prior, configurations), prior.loadings[configurations]
        if not points.logs.size:
            alone = np.full(configurations.size, smoothing.deviation)
            return mean, prior.deviation[configurations] if loadings.size else alone
        count = configurations.size
        now = [np.full((count, 1), load), np.full((count, 1), self.measured.machine(state.level))]
        where = np.concatenate([self._places[configurations], *now], axis=1)
        leaps = None if prior.leap is None else Leaps(configurations, prior.leap[configurations])
        with one_blas_thread():
            above, deviation = posterior(theta, points, smoothing, where, loadings=loadings, leaps=leaps)
        return mean + above, deviation

    def _points(self, state: State) -> Points:
        """Return the measured points that bear on a state, their logarithms less the mean of the prior."""
        smoothing, load = self.parameters.smoothing, self._load(state)
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

    def _fit(self, requests: int) -> None:  # noqa: ARG002 - one fit serves all windows that came meanwhile
        """Fit the hyperparameters to all measurements, unless hardly any came since the last fit."""
        with self._lock:
            points, windows = self._points(self._present), self.measured.total
            fitted_to = self.measured, self.measured.era, self.informed
        if windows < self.fitted * (1.0 + 1.0 / REFIT):
            return
        with one_blas_thread():
            theta = fit(self.theta, points, self._smoothing)
        with self._lock:
            if fitted_to == (self.measured, self.measured.era, self.informed):  # else the next request fits
                self.theta, self.fitted, self._beliefs = theta, windows, {}
