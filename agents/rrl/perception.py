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
* *Q.* The expected cost, plus what is lost later by not trying another configuration: one is tried if what
  its window teaches is worth what it may cost (:mod:`tuner.agents.rrl.lookahead`), and exploration ends
  where nothing is. Without a prior, without a window that bears on the load, and for the least use of CPU or
  GPU, which is found where costs leap: the expected cost less ``smoothing.optimism`` standard deviations, so
  that what is unknown is tried before what is known to be dear.
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
from collections.abc import Mapping, Sequence

import numpy as np

from tuner.agents.agent import State
from tuner.agents.load_levels import SPAN, neighbours
from tuner.agents.log_cost import SMALLEST_COST
from tuner.agents.policy_file import StoredArrays
from tuner.agents.rrl.drift import DriftDetector
from tuner.agents.rrl.lookahead import horizon, regrets
from tuner.agents.rrl.measured import ERA_SPAN, left_on
from tuner.agents.rrl.neural.prior import NeuralPrior
from tuner.agents.rrl.parameters import RRLParameters
from tuner.agents.rrl.prior import InterpolatedPrior, Prior
from tuner.agents.rrl.rise import CARRIED
from tuner.agents.rrl.risk import bearable, safe
from tuner.agents.rrl.smoother import Belief, Smoother
from tuner.agents.trainer import Trainer
from tuner.knobs import KnobSpace

__all__ = ["SmoothPerception"]

KNOWN = 0.6
"""A cost counts as known once its standard deviation is below this share of what it was before any
measurement: a configuration that nothing measured bears on keeps the whole of it."""
FOREMOST, FOREMOST_DEVIATIONS = 150, 1.5
"""How many configurations are compared by what they teach: those that are cheapest at this many standard
deviations below what is expected. The work grows with the square of their number."""
SETTLED = 2
"""Windows of a configuration after which the next may show drift. A prediction that rests on one window, or
on neighbours alone, is wrong often enough on a machine that has not changed."""
LARGEST_LOGARITHM = 50.0
"""Largest absolute value of a fitted parameter in a saved policy, ..."""
LARGEST_LOAD = 64.0
"""... of a load, in octaves, ..."""
LARGEST_LEVEL = 100 * SPAN
"""... and of a load level."""


class SmoothPerception:
    """What configurations are thought to cost, at any load.

    Life: :meth:`learn` after every window; :meth:`values`, :meth:`cautious` and :meth:`costs` answer from
    what was learned. In between, the trainer fits the reach.

    Args:
        space: The configurations.
        parameters: The constants.
        synchronous: Fit the reach inside :meth:`learn`.

    Attributes:
        smoother: What was measured, and what follows from it and the prior.
        drift: Watches whether predictions come true.
        trainer: Fits the reach; its ``background`` may change between windows.
    """

    def __init__(self, space: KnobSpace, parameters: RRLParameters, *, synchronous: bool = False) -> None:
        self.space = space
        self.parameters = parameters
        self.smoother = Smoother(space, parameters)
        self.drift = DriftDetector(parameters.drift)
        self.trainer = Trainer(self.smoother.refit, "rrl-smoother", background=not synchronous)

    def learn(self, state: State, configuration: int, cost: float, next_state: State) -> None:  # noqa: ARG002
        """Take in what a configuration cost in one window."""
        smoother, changed = self.smoother, None
        times = smoother.measured.since(configuration, smoother.load(state), state.level)
        if self.parameters.detect_drift and times >= SETTLED:
            total = smoother.measured.total
            since = self.drift.add(smoother.surprise(state, configuration, cost), total)
            changed = None if since is None else total + 1 - since
        smoother.add(state, configuration, cost, changed)
        if self.parameters.smoothing.adaptive:
            self.trainer.request()

    def windows(self, level: int) -> int:
        """Return how many windows were learned from at a level."""
        return self.smoother.windows(level)

    def values(self, state: State, configurations: np.ndarray) -> np.ndarray:
        """Return optimistic costs, by which to explore; infinite for what should not be tried.   # (n,)."""
        values = np.full(self.space.size, np.inf)
        if not self.smoother.bears_on(state.level):
            # Nothing is known: first measure the configuration in force, as any other might be worse.
            here = configurations == state.configuration
            return np.asarray(np.where(here | ~here.any(), 1.0, np.inf))
        candidates = self.smoother.candidates(state, configurations)
        mean, deviation = self.smoother.belief(state, candidates)
        tried = self._explorable(state, mean, deviation)
        values[candidates[tried]] = self._values_of(state, candidates[tried], mean[tried], deviation[tried])
        values[candidates] += self._cost_of_rise(state, candidates)
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
        prior = self.smoother.prior
        if isinstance(prior, NeuralPrior) and prior.ready:
            worst = (mean + deviation)[tried]
            tried[tried] = bearable(worst, prior.broken, self.windows(state.level))
        return tried

    def _values_of(
        self, state: State, configurations: np.ndarray, mean: np.ndarray, deviation: np.ndarray
    ) -> np.ndarray:
        """Return what it is thought to cost to choose each next; infinite for the hopeless.   # (n,).

        Args:
            state: The load level.
            configurations: Their numbers.   # (n,)
            mean: Of the logarithm of each cost.   # (n,)
            deviation: Likewise.   # (n,)
        """
        smoother = self.smoother
        if smoother.neural and self.windows(state.level) <= 1:
            # Hardly anything was measured at this load: be pessimistic, so that the first step is no gamble.
            # A configuration that keeps the SLO is not left for one that may break it.
            return np.asarray(np.exp(mean + deviation))
        if not (smoother.informed and smoother.corrected(state.level)) or self._least_use():
            return np.asarray(np.exp(mean - self.parameters.smoothing.optimism * deviation))
        foremost = np.argsort(mean - FOREMOST_DEVIATIONS * deviation, kind="stable")[:FOREMOST]
        foremost = np.union1d(foremost, np.argmin(mean))
        covariance = smoother.joint(state, configurations[foremost])
        windows = horizon(self.parameters.horizon, smoother.measured.fresh(state.level))
        values = np.full(mean.size, np.inf)
        values[foremost] = regrets(mean[foremost], covariance, smoother.noise, windows)
        return values + math.exp(float(mean.min()))

    def _least_use(self) -> bool:
        """Whether the best is looked for near the SLO, where costs leap.

        One normal number stands badly for a cost that is one of two: looking ahead, no window of such a
        configuration seemed worth its cost, and the best was left out in most lives.
        """
        prior = self.smoother.prior
        return isinstance(prior, NeuralPrior) and prior.broken > -math.inf

    def cautious(self, state: State, configurations: np.ndarray) -> np.ndarray:
        """Return expected costs with one standard deviation added; NaN if nothing is known.   # (n,)."""
        values = np.full(self.space.size, np.nan)
        if self.smoother.bears_on(state.level):
            candidates = self.smoother.candidates(state, configurations)
            mean, deviation = self.smoother.belief(state, candidates)
            values[candidates] = np.exp(mean + deviation) + self._cost_of_rise(state, candidates)
        return np.asarray(values[configurations])

    def _cost_of_rise(self, state: State, configurations: np.ndarray) -> np.ndarray:
        """Return the expected extra cost of still running each configuration when the load rises.   # (n,).

        It is 0 for the best at the higher load, and for all where no rise is to be expected.
        """
        prospect = self.smoother.measured.prospect(self.smoother.load(state))
        if prospect is None:
            return np.zeros(configurations.size)
        then = State(level=prospect.level, configuration=state.configuration, rate=2.0**prospect.load)
        mean, deviation = self.smoother.belief(then, configurations)
        worst = np.exp(mean + deviation)
        return np.asarray(CARRIED * prospect.chance * (worst - worst.min()))

    def costs(self, level: int, rate: float | None = None) -> np.ndarray:
        """Return the expected cost of every configuration; NaN where nothing bears on it.   # (size,).

        Args:
            level: The load level.
            rate: The load, requests/s; None for the mean of those that were measured at the level.
        """
        state = self._usual(level) if rate is None else State(level=level, configuration=0, rate=rate)
        costs = np.full(self.space.size, np.nan)
        if self.windows(level) or self.informed:
            candidates = self.smoother.candidates(state, self.space.distinct)
            mean, deviation = self.smoother.belief(state, candidates)
            known = self.informed | (deviation < KNOWN * self.smoother.constants.deviation)
            costs[candidates[known]] = np.exp(mean[known])
        return np.asarray(costs[self.space.canonical])

    def _usual(self, level: int) -> State:
        """Return a state with the mean of the loads measured at a level; without any, it has the middle."""
        load = self.smoother.measured.mean_load(level)
        return State(level=level, configuration=0, rate=None if load is None else 2.0**load)

    @property
    def informed(self) -> bool:
        """Whether a prior says what to expect."""
        return self.smoother.informed

    def belief(self, state: State) -> Belief:
        """Return mean and standard deviation of the logarithm of each cost.   # (size,) each."""
        mean, deviation = self.smoother.belief(state, self.space.canonical)
        return mean, deviation

    def basis(self, state: State, configuration: int) -> str:
        """Return in words what the expected cost of a configuration rests on; empty without a prior."""
        smoother = self.smoother
        if smoother.prior is None or not smoother.prior.ready:
            return ""
        here, unlike = len(smoother.measured), self.unlike(state)
        of_others = f" on servers unlike this one in {', '.join(unlike)}" if unlike else ""
        origin = smoother.prior.origin + of_others
        if smoother.measured.since(configuration, smoother.load(state), state.level):
            return f"{origin}, and measured here"
        return f"{origin}, corrected by {here} window{'s' * (here > 1)} here" if here else origin

    def unlike(self, state: State) -> tuple[str, ...]:
        """Return in which respects this server is unlike all that the prior learned from."""
        smoother = self.smoother
        if smoother.prior is None or not smoother.prior.ready:
            return ()
        left = left_on(smoother.measured.machine(state.level))
        return smoother.prior.unlike(smoother.load(state), left, math.log2(self.parameters.levels.ratio))

    def extrapolates(self, state: State) -> bool:
        """Whether costs at a load are those of another: of the nearest that the prior has, far from it.

        Once anything was measured at its level they are not: what was measured corrects them.
        """
        beyond = isinstance(self.smoother.prior, InterpolatedPrior) and bool(self.unlike(state))
        return beyond and not self.windows(state.level)

    def scale(self, state: State, values: np.ndarray) -> float:  # noqa: ARG002 - a table needs the state
        """Return the least value, to which a relative temperature refers."""
        return max(float(values.min()), SMALLEST_COST)

    def transfer(self) -> None:
        """Make what was learned the prior for another server; see :meth:`RRL.transfer`.

        It holds costs at the loads that were measured, the mean one of each level. Loads about the border of
        two levels are one. Loads that only the present prior knows, from an earlier training, stay.
        """
        smoother, grid = self.smoother, self.parameters.levels
        levels, prior = smoother.measured.levels, smoother.prior
        if not levels:
            return

        def apart(state: State, others: Sequence[State]) -> bool:
            loads = np.array([smoother.load(other) for other in others])
            return bool((abs(loads - smoother.load(state)) >= math.log2(grid.ratio) / 2).all())

        least = min(map(neighbours, levels))  # a prior has one machine: the one shared least
        states: list[State] = []
        for level in sorted(levels, key=smoother.windows, reverse=True):
            if neighbours(level) == least and apart(state := self._usual(level), states):
                states.append(state)
        loads = prior.loads.tolist() if isinstance(prior, InterpolatedPrior) else []
        earlier = [
            State(level=grid.level(2.0**load) + SPAN * least, configuration=0, rate=2.0**load)
            for load in loads
        ]
        states += [state for state in earlier if apart(state, states)]
        states.sort(key=smoother.load)
        everything = np.arange(self.space.size)
        logs = np.array([smoother.predict(state, everything)[0] for state in states])
        self.start_from(InterpolatedPrior(np.array([smoother.load(state) for state in states]), logs))

    def start_from(self, prior: Prior) -> None:
        """Forget everything measured and start from a prior."""
        self.smoother.start_from(prior)
        self.drift = DriftDetector(self.parameters.drift)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything learned as arrays, which :meth:`restore` reads."""
        drift, smoother = self.drift, self.smoother
        measured = smoother.measured
        counts = [measured.total, measured.era, smoother.fitted, drift.above_since, drift.below_since]
        arrays = {
            "windows": measured.rows(),
            "theta": smoother.theta,
            "counts": np.array(counts),
            "drift": np.array([drift.above, drift.below]),
        }
        if smoother.prior is not None:
            arrays |= smoother.prior.arrays()
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
        prior = InterpolatedPrior.stored(arrays, size) or NeuralPrior.stored(arrays, self.space)
        measured = self.smoother.nothing_measured()
        measured.restore(rows, era, total)
        self.smoother.restore(prior, measured, theta, fitted)
        self.drift = DriftDetector(self.parameters.drift)
        self.drift.above, self.drift.below = map(float, sums)
        self.drift.above_since, self.drift.below_since = above_since, below_since

    def watch(self, number: int, seen: Mapping[str, float]) -> None:
        """Let the prior learn from what a window of a configuration showed beside its cost."""
        self.smoother.watch(number, seen)

    def move(self, cores: float) -> None:
        """Expect what the server does with this many cores; what was measured was so on a similar machine."""
        if self.smoother.move(cores):
            self.drift = DriftDetector(self.parameters.drift)
