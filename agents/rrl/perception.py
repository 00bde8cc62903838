"""Our perception: every measurement teaches about all configurations and loads, the nearer the more.

What becomes of the parts of the paper's (:mod:`tuner.agents.rrl.table.perception`), and why:

* *Region.* Not a ball of fixed size but a reach per knob and for the load, fitted to what was measured
  (:mod:`tuner.agents.rrl.smoothing`). With ``smoothing.adaptive = False`` it keeps the size it starts with.
* *Estimation function.* The network needs more windows than there are; the smoother takes its place.
* *Learning rate.* Every update weighs a measurement against what was thought by how sure either is, as
  a Kalman filter does; for a configuration measured alone that is 1/t.
* *Q.* What a configuration is thought to cost, less ``smoothing.optimism`` standard deviations: the little
  known is tried before what is known to be dear, and exploration ends where nothing promises more.
* *Load levels.* What is learned at one load holds at its neighbours as far as that reach goes (``carry``);
  where the window's rate is known it is the load, rather than the middle of its level.
* *A start.* A calibrated simulation may say what to expect (``prior``).
* *Drift.* When what was foretold turns out wrong for good, an era ends (:mod:`~.drift`): what was
  measured before counts as that of a similar machine, and loses to what is measured now where they differ.

A known weakness: exploration may end too early. What is far from everything measured is taken to cost about
the mean of what was, with a fitted deviation that can be too small; on the synthetic valley of
``tests/agents/rrl/test_perception.py`` the agent stays at 1.1 to 2.1 times the best. Neither a higher
``smoothing.ceiling`` nor a floor under the deviation cured it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from threading import Lock

import numpy as np

from tuner.agents.agent import State
from tuner.agents.rrl.caution import safe
from tuner.agents.rrl.drift import DriftDetector
from tuner.agents.rrl.measured import SMALLEST, Measured
from tuner.agents.rrl.parameters import RRLParameters
from tuner.agents.rrl.prior import Prior
from tuner.agents.rrl.smoothing import Points, SmoothingParameters, coordinates, fit, posterior, start
from tuner.agents.threads import one_blas_thread
from tuner.agents.trainer import Trainer
from tuner.knobs import KnobSpace

__all__ = ["SmoothPerception"]

CANDIDATES = 8192
"""Configurations looked at in one decision; of a larger space a sample, and what is near the known."""
REFIT = 24
"""The reach is fitted again when the points have become more by one in so many."""
KNOWN = 0.6
"""Share of the standard deviation before anything was measured, below which a cost counts as known."""
BIN = 0.05
"""Octaves of load (3.5 %) within which beliefs are the same."""
FORETOLD = 2
"""Windows of a configuration after which the next one may tell of drift."""

Belief = tuple[np.ndarray, np.ndarray]
"""Mean and standard deviation of the logarithm of costs."""


class SmoothPerception:
    """What configurations are thought to cost, at any load.

    Args:
        space: The configurations.
        parameters: The constants.
        synchronous: Fit the reach inside :meth:`learn`.

    Attributes:
        measured: What was measured.
        theta: The fitted parameters of the smoother.
        prior: What was thought before, if anything was.
        drift: Watches whether what was foretold comes true.
        fitted: Points that the last fit rested on.
        trainer: What fits; whether in the background may be changed between windows.
    """

    def __init__(self, space: KnobSpace, parameters: RRLParameters, *, synchronous: bool = False) -> None:
        self.space = space
        self.parameters = parameters
        self.prior: Prior | None = None
        self.drift = DriftDetector(parameters.drift)
        self.trainer = Trainer(self._fit, "rrl-smoother", background=not synchronous)
        self._places = coordinates(space)
        self.measured = Measured(self._places, parameters.memory)
        self.theta = start(parameters.smoothing, len(space.knobs))
        self.fitted = 0
        self._present = State(level=0, configuration=0)
        self._beliefs: dict[tuple[int, int], Belief] = {}
        self._lock = Lock()

    def learn(self, state: State, configuration: int, cost: float, next_state: State) -> None:  # noqa: ARG002
        """Take in what a configuration showed."""
        load, since = self._load(state), None
        if self.parameters.detect_drift and self.measured.since(configuration, load) >= FORETOLD:
            mean, deviation = self._foretell(state, np.array([configuration]))
            missed = math.log(max(cost, SMALLEST)) - float(mean[0])
            spread = math.hypot(float(deviation[0]), math.exp(self.theta[-1]))
            since = self.drift.add(missed / spread, self.measured.total)
        with self._lock:
            self.measured.add(state.level, load, configuration, cost)
            if since is not None:
                self.measured.begin_era(self.measured.total - since)
            self._present = state
            self._beliefs = {}
        if self.parameters.smoothing.adaptive:
            self.trainer.request()

    def windows(self, level: int) -> int:
        """Windows learned from at a level."""
        return self.measured.visits(level).total()

    def visits(self, level: int, configuration: int) -> int:
        """Windows in which a configuration was measured at a level."""
        return self.measured.visits(level)[configuration]

    def costs(self, level: int) -> np.ndarray:
        """Expected cost of every configuration; NaN where nothing near was measured, or told.   # (size,)."""
        costs = np.full(self.space.size, np.nan)
        if self.windows(level) or self.prior is not None:
            looked = self._candidates(level, self.space.distinct)
            mean, deviation = self._belief(State(level=level, configuration=0), looked)
            told = self.prior is not None
            known = told | (deviation < KNOWN * self._smoothing.deviation)
            costs[looked[known]] = np.exp(mean[known])
        return np.asarray(costs[self.space.canonical])

    def cautious(self, state: State, configurations: np.ndarray) -> np.ndarray:
        """Expected costs with one standard deviation added; NaN if nothing is known.   # (n,)."""
        values = np.full(self.space.size, np.nan)
        if self._knows(state.level):
            looked = self._candidates(state.level, configurations)
            mean, deviation = self._belief(state, looked)
            values[looked] = np.exp(mean + deviation)
        return np.asarray(values[configurations])

    def values(self, state: State, configurations: np.ndarray) -> np.ndarray:
        """What the policy weighs: an optimistic cost, infinite where nothing should be tried.   # (n,)."""
        values = np.full(self.space.size, np.inf)
        if not self._knows(state.level):  # what runs is measured first
            here = configurations == state.configuration
            return np.asarray(np.where(here | ~here.any(), 1.0, np.inf))
        looked = self._candidates(state.level, configurations)
        mean, deviation = self._belief(state, looked)
        optimistic = np.exp(mean - self.parameters.smoothing.optimism * deviation)
        if self.parameters.caution is not None:
            optimistic[~safe(mean, deviation, self.parameters.caution)] = np.inf
        values[looked] = optimistic
        return np.asarray(values[configurations])

    def scale(self, state: State, values: np.ndarray) -> float:  # noqa: ARG002 - a table knows better
        """The least value, to which a relative temperature refers."""
        return max(float(values.min()), SMALLEST)

    def transfer(self) -> None:
        """Make what was learned the prior of another server; see :meth:`RRL.transfer`."""
        levels = self.measured.levels
        if not levels:
            return
        everything = np.arange(self.space.size)
        loads = [math.log2(self.parameters.levels.rate(level)) for level in levels]
        states = [State(level=level, configuration=0) for level in levels]
        self.start_from(Prior(np.array(loads), np.array([self._foretell(s, everything)[0] for s in states])))

    def start_from(self, prior: Prior) -> None:
        """Begin anew, from what a simulation or another server says."""
        with self._lock:
            self.prior = prior
            self.measured = Measured(self._places, self.parameters.memory)
            self.theta = start(self._smoothing, len(self.space.knobs))
            self.drift = DriftDetector(self.parameters.drift)
            self.fitted = 0
            self._beliefs = {}

    def resume(self, rows: np.ndarray, theta: np.ndarray, *, era: int, total: int, fitted: int) -> None:
        """Take over windows and fitted parameters that were saved.

        Args:
            rows: As :meth:`Measured.rows` returns them.
            theta: The fitted parameters.
            era: The present one.
            total: Windows there ever were.
            fitted: Points that the last fit rested on.
        """
        with self._lock:
            self.measured.restore(rows, era, total)
            self.theta, self.fitted, self._beliefs = theta.copy(), fitted, {}

    def close(self) -> None:
        """Stop background work. May be called twice."""
        self.trainer.close()

    @property
    def _smoothing(self) -> SmoothingParameters:
        p = self.parameters.smoothing
        return p if self.prior is None else replace(p, deviation=p.prior_deviation)

    def _load(self, state: State) -> float:
        """Octaves."""
        rate = state.rate if state.rate else self.parameters.levels.rate(state.level)
        return math.log2(max(rate, self.parameters.levels.lowest))

    def _knows(self, level: int) -> bool:
        """Whether anything is known that bears on a level."""
        return (
            self.prior is not None
            or bool(self.windows(level))
            or (self.parameters.carry and len(self.measured) > 0)
        )

    def _candidates(self, level: int, configurations: np.ndarray) -> np.ndarray:
        """Of very many configurations those to look at: near what was measured, and some of all others."""
        if configurations.size <= CANDIDATES:
            return configurations
        stride = -(-configurations.size // CANDIDATES)
        chosen = configurations[self.measured.total % stride :: stride]
        visited = list(self.measured.visits(level))[-64:]
        near = [self.space.region(c, 1.0) for c in visited]
        return np.intersect1d(np.concatenate([chosen, *near]), configurations)

    def _belief(self, state: State, configurations: np.ndarray) -> Belief:
        """The same as :meth:`_foretell`, remembered until more is learned if the space is not too large."""
        if self.space.size > CANDIDATES:
            return self._foretell(state, configurations)
        key = (state.level, round(self._load(state) / BIN))
        beliefs = self._beliefs
        if key not in beliefs:
            beliefs[key] = self._foretell(state, np.arange(self.space.size))
        mean, deviation = beliefs[key]
        return mean[configurations], deviation[configurations]

    def _foretell(self, state: State, configurations: np.ndarray) -> Belief:
        """Mean and standard deviation of the logarithm of what configurations cost now.   # (n,), (n,)."""
        smoothing, load, theta = self._smoothing, self._load(state), self.theta
        points = self._points(state)
        ahead = self._expected(load)[configurations]
        if not points.logs.size:
            return ahead, np.full(configurations.size, smoothing.deviation)
        count = configurations.size
        now = [np.full((count, 1), load), np.full((count, 1), float(self.measured.era))]
        where = np.concatenate([self._places[configurations], *now], axis=1)
        with one_blas_thread():
            mean, deviation = posterior(theta, points, smoothing, where)
        return ahead + mean, deviation

    def _points(self, state: State) -> Points:
        """What was measured beyond what the prior says."""
        smoothing, load = self.parameters.smoothing, self._load(state)
        level = None if self.parameters.carry else state.level
        points = self.measured.points(load, smoothing.ceiling, smoothing.points, level)
        if self.prior is None:
            return points
        ahead = [self._expected(at)[c] for at, c in zip(points.places[:, -2], points.numbers, strict=True)]
        return points._replace(logs=points.logs - np.array(ahead))

    def _expected(self, load: float) -> np.ndarray:
        """What the prior says, no more above its least than costs count; 0 without one.   # (size,)."""
        if self.prior is None:
            return np.zeros(self.space.size)
        logs = self.prior.at(load)
        return np.asarray(np.minimum(logs, logs.min() + self.parameters.smoothing.ceiling))

    def _fit(self, requests: int) -> None:  # noqa: ARG002 - whatever came meanwhile is fitted together
        """Fit the reach to what is known now, unless hardly anything was added."""
        with self._lock:
            points = self._points(self._present)
        if points.logs.size < self.fitted * (1.0 + 1.0 / REFIT):
            return
        with one_blas_thread():
            theta = fit(self.theta, points, self._smoothing)
        with self._lock:
            self.theta, self.fitted, self._beliefs = theta, points.logs.size, {}
