"""Region-based reinforcement learning (RRL): one window teaches about a whole region of configurations.

Qin et al., "Swift machine learning model serving scheduling: a region based reinforcement learning
approach", SC'19, section 4, algorithm 1. The state is the load level, the action a configuration. For
each level there is a perception Q(s, c). In every window:

1. choose a configuration with probability proportional to ``exp(-beta * Q(s, c))`` (eq. 3);
2. measure its cost r_t; estimate that of all configurations in a region around it and update their Q (eq. 2);
3. the policy follows from the new Q.

This file chooses; step 2 is the business of a perception. The paper's is
:mod:`tuner.agents.rrl.table.perception`; :mod:`tuner.agents.rrl.presets` has its constants and those of the
authors' code. By default it is :mod:`tuner.agents.rrl.perception`, which goes beyond the paper and says
how. beta may be in units of one over the least cost, so that it needs no tuning per model, and may grow with
the windows seen at the level.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from tuner.agents.agent import State, check_seed
from tuner.agents.explanation import Explanation
from tuner.agents.load_levels import LoadLevels
from tuner.agents.rrl.file import load_perception, save_perception
from tuner.agents.rrl.parameters import RRLParameters
from tuner.agents.rrl.perception import SmoothPerception
from tuner.agents.rrl.prior import Prior
from tuner.agents.rrl.region import boltzmann
from tuner.agents.rrl.schedule import inverse_logits
from tuner.agents.rrl.table.perception import TablePerception
from tuner.knobs import KnobSpace

__all__ = ["RRL", "Explanation", "RRLParameters"]


class RRL:
    """The agent: knows nothing at first, learns from every window, and can be saved and loaded.

    Args:
        space: The configurations.
        parameters: The constants.
        seed: Of exploration and of the estimator.
        synchronous: Train the estimator inside :meth:`update`, so that the same seed gives the same
            decisions (simulation, tests), rather than in a thread of its own that delays no window (live).
    """

    def __init__(
        self,
        space: KnobSpace,
        parameters: RRLParameters | None = None,
        *,
        seed: int = 0,
        synchronous: bool = False,
    ) -> None:
        check_seed(seed)
        self.space = space
        self.parameters = parameters or RRLParameters()
        self.perception: SmoothPerception | TablePerception
        if self.parameters.perception == "table":
            self.perception = TablePerception(space, self.parameters, seed=seed, synchronous=synchronous)
        else:
            self.perception = SmoothPerception(space, self.parameters, synchronous=synchronous)
        self._everything = space.distinct
        self._generator = np.random.default_rng(seed)

    @property
    def levels(self) -> LoadLevels:
        """The grid of arrival rates that tells states apart."""
        return self.parameters.levels

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Draw a configuration from the Boltzmann policy over those allowed (eq. 3)."""
        allowed = self._allowed(allowed)
        probabilities = self._policy(state, allowed)
        drawn = int(np.searchsorted(np.cumsum(probabilities), self._generator.random(), side="right"))
        return int(allowed[min(drawn, allowed.size - 1)])

    def best(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Return the known configuration with the least cost, one standard error added.

        Where nothing allowed is known, a level never seen is predicted from the nearest one, else the
        configuration in force stays. Of equals it takes the one in force, then the lowest number.
        """
        allowed = self._allowed(allowed)
        values = self.perception.cautious(state, allowed)
        if np.isnan(values).all():
            return state.configuration if state.configuration in allowed else int(allowed[0])
        equals = allowed[values == np.nanmin(values)]
        return state.configuration if state.configuration in equals else int(equals.min())

    def update(self, state: State, configuration: int, cost: float, next_state: State) -> None:
        """Learn from one window: update the region of the configuration (eq. 2)."""
        if not (math.isfinite(cost) and cost >= 0):
            raise ValueError(f"a cost to learn from must be finite and at least 0, but got {cost=}")
        self.perception.learn(state, configuration, cost, next_state)

    def costs(self, level: int) -> np.ndarray:
        """Learned cost of one window per configuration, without the future; NaN if unknown.   # (size,)."""
        return self.perception.costs(level)

    def explain(self, level: int, configuration: int, allowed: np.ndarray | None = None) -> Explanation:
        """Tell what is known about a configuration at a load level, and how likely it is to be chosen."""
        allowed = self._allowed(allowed)
        costs = self.costs(level)
        state = State(level=level, configuration=configuration)
        best = self.best(state, allowed)
        return Explanation(
            level=level,
            configuration=configuration,
            text=self.space.format(self.space.decode(configuration)),
            cost=float(costs[configuration]),
            visits=self.perception.visits(level, configuration),
            windows=self.perception.windows(level),
            best=best,
            best_text=self.space.format(self.space.decode(best)),
            best_cost=float(costs[best]),
            probability=float(self._policy(state, allowed)[allowed == configuration].sum()),
        )

    def transfer(self, *, synchronous: bool = False) -> None:
        """Take everything learned so far as hearsay: it comes from a simulation or from another server.

        Costs stay known but weigh so little that a single measurement outweighs them, and all counts as never
        measured, so that what looks nearly as good as the best is tried again. A table is as greedy as after
        ``transfer_windows``, and its estimator keeps its weights and a sample of its windows; otherwise what
        was learned becomes the prior.

        Args:
            synchronous: As for the class; false because what follows usually is live.
        """
        self.perception.transfer()
        self.perception.trainer.background = not synchronous

    def start_from(self, prior: Prior) -> None:
        """Begin anew from what a simulation or another server says; not for a table, which has no prior.

        Args:
            prior: What configurations are thought to cost.
        """
        assert isinstance(self.perception, SmoothPerception), "a table has no prior"
        self.perception.start_from(prior)

    def save(self, folder: Path) -> None:
        """Write everything learned to a folder, atomically, without pickle; see ``policy_file.py``.

        Raises:
            StorageError: The folder cannot be written.
        """
        save_perception(Path(folder), self.perception)

    @classmethod
    def load(cls, folder: Path, space: KnobSpace, *, seed: int = 0, synchronous: bool = False) -> RRL:
        """Read a saved agent, with the parameters it was saved with.

        Args:
            folder: Where :meth:`save` wrote it.
            space: The knobs and grids it must be about.
            seed: Of exploration from now on.
            synchronous: As for the class.

        Raises:
            InvalidInput: The policy is about other knobs or grids; names the first that differs.
            StorageError: There is no policy, or it is damaged.
        """
        check_seed(seed)
        perception = load_perception(Path(folder), space, seed=seed, synchronous=synchronous)
        agent = cls(space, perception.parameters, seed=seed, synchronous=synchronous)
        agent.perception = perception
        return agent

    def close(self) -> None:
        """Stop background training. May be called twice."""
        self.perception.close()

    def _allowed(self, allowed: np.ndarray | None) -> np.ndarray:
        if allowed is None:
            return self._everything
        if len(allowed) == 0:
            raise ValueError("at least one configuration must be allowed")
        return np.asarray(allowed, dtype=np.int64)

    def _policy(self, state: State, allowed: np.ndarray) -> np.ndarray:
        """The probability of each configuration (eq. 3).   # (n,)."""
        p = self.parameters
        values = self.perception.values(state, allowed)
        probabilities = np.empty(allowed.size)
        if p.temperature == "inverse":
            logits = inverse_logits(np.maximum(values * p.unit, 1e-6))
            boltzmann(-logits, 1.0, probabilities)
            return probabilities
        if p.temperature == "relative":
            values = values / self.perception.scale(state, values)
        boltzmann(values, p.beta(self.perception.windows(state.level)), probabilities)
        return probabilities
