"""Region-based reinforcement learning (RRL): one window teaches about a whole region of configurations.

Qin et al., "Swift machine learning model serving scheduling: a region based reinforcement learning
approach", SC'19, section 4, algorithm 1. The state is the load level, the action a configuration. For
each level there is a perception Q(s, c), what each configuration is thought to cost. In every window:

1. :meth:`RRL.select` draws a configuration with a probability proportional to exp(-beta * Q(s, c)) (eq. 3);
2. the server runs it, and the window shows its cost r_t;
3. :meth:`RRL.update` teaches the perception what r_t says of all configurations in a region around (eq. 2).

Where we differ: step 3 of the default form is :mod:`tuner.agents.rrl.perception`, which goes beyond the paper
and says how and why. The paper's own is in :mod:`tuner.agents.rrl.table`, and is loaded only if its
parameters are given. beta may be in units of one over the least cost (:mod:`tuner.agents.rrl.exploration`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from tuner.agents.agent import State, check_cost, check_seed
from tuner.agents.choice import allowed_numbers, cheapest, stay
from tuner.agents.load_levels import LoadLevels
from tuner.agents.policy_file import check_knobs, check_objective, damaged, read_policy, write_policy
from tuner.agents.rrl.exploration import probabilities
from tuner.agents.rrl.neural.prior import NeuralPrior, estimable
from tuner.agents.rrl.parameters import RRLParameters
from tuner.agents.rrl.perception import SmoothPerception
from tuner.agents.rrl.prior import Prior
from tuner.knobs import KnobSpace
from tuner.objective import Objective

if TYPE_CHECKING:
    from tuner.agents.rrl.table.parameters import TableParameters
    from tuner.agents.rrl.table.perception import TablePerception

__all__ = ["RRL"]


class RRL:
    """The agent: learns from every window, and can be saved and loaded.

    Args:
        space: The configurations.
        parameters: The constants; their class decides between the default form and the table form.
        objective: What is minimised, on the server's machine. With it the neural estimator says what to
            expect before anything was tried; without, or in the table form, nothing does.
        seed: Of exploration; in the table form, also of the estimation function.
        synchronous: Train inside :meth:`update`, so that the same seed gives the same decisions (simulation,
            tests), rather than in a thread, which delays no window (live).
    """

    def __init__(
        self,
        space: KnobSpace,
        parameters: RRLParameters | TableParameters | None = None,
        *,
        objective: Objective | None = None,
        seed: int = 0,
        synchronous: bool = False,
    ) -> None:
        seed = check_seed(seed)
        self.space = space
        self.parameters = parameters or RRLParameters()
        self.perception: SmoothPerception | TablePerception
        if isinstance(self.parameters, RRLParameters):
            self.perception = SmoothPerception(space, self.parameters, synchronous=synchronous)
            if self.parameters.prior == "neural" and estimable(space, objective):
                assert objective is not None
                self.perception.start_from(NeuralPrior(space, objective))
        else:
            from tuner.agents.rrl.table.perception import TablePerception  # brings the network along

            self.perception = TablePerception(space, self.parameters, seed=seed, synchronous=synchronous)
        self._generator = np.random.default_rng(seed)
        self._objective = None if objective is None else str(objective)

    @property
    def levels(self) -> LoadLevels:
        """The grid of arrival rates, whose points are the states."""
        return self.parameters.levels

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Draw a configuration from the Boltzmann policy over those allowed (eq. 3)."""
        allowed = allowed_numbers(self.space, allowed)
        self._watch(state)
        cumulated = np.cumsum(self.probabilities(state, allowed))
        drawn = int(np.searchsorted(cumulated, self._generator.random(), side="right"))
        return int(allowed[min(drawn, allowed.size - 1)])  # rounding may leave the last sum just below 1

    def probabilities(self, state: State, allowed: np.ndarray) -> np.ndarray:
        """Return how likely :meth:`select` is to choose each configuration that is allowed.   # (n,)."""
        values = self.perception.values(state, allowed)
        return probabilities(
            values,
            self.parameters,
            windows=self.perception.windows(state.level),
            scale=self.perception.scale(state, values),
        )

    def update(self, state: State, configuration: int, cost: float, next_state: State) -> None:
        """Learn from one window: update the region of the configuration (eq. 2)."""
        self._watch(next_state)
        self.perception.learn(state, configuration, check_cost(cost), next_state)

    def _watch(self, state: State) -> None:
        if state.seen is not None and isinstance(self.perception, SmoothPerception):
            self.perception.watch(state.configuration, state.seen)

    def best(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Return the known configuration with the least cost, one standard error added.

        A level that was never seen is predicted from the others: by the default form if it carries anything
        from load to load, by the table form from the nearest level, whose costs count unchanged without
        ``carry``. Where nothing is known, the configuration in force stays. Among equals the one in force
        wins, then the lowest number.
        """
        allowed = allowed_numbers(self.space, allowed)
        best = cheapest(self.perception.cautious(state, allowed), allowed, state)
        return stay(state, allowed) if best is None else best

    def costs(self, level: int) -> np.ndarray:
        """Return the learned cost of one window per configuration; NaN if unknown.   # (size,)."""
        return self.perception.costs(level)

    def costs_at(self, state: State) -> np.ndarray:
        """Return the learned costs at the load of a state, which says more than its level.   # (size,)."""
        if not isinstance(self.perception, SmoothPerception):
            return self.perception.costs(state.level)
        return self.perception.costs(state.level, state.rate)

    def belief(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Return logarithms of what configurations are thought to cost, and deviations.   # (size,) each.

        Raises:
            TypeError: The agent is of the table form, which knows no uncertainty.
        """
        if not isinstance(self.perception, SmoothPerception):
            raise TypeError("a table has no belief, only costs")
        self._watch(state)
        return self.perception.belief(state)

    def basis(self, state: State, configuration: int) -> str:
        """Return in words what the expected cost of a configuration rests on; empty without a prior."""
        if not isinstance(self.perception, SmoothPerception):
            return ""
        return self.perception.basis(state, configuration)

    def unlike(self, state: State) -> tuple[str, ...]:
        """Return in which respects the server is unlike all that the prior learned from; mostly in none."""
        return self.perception.unlike(state) if isinstance(self.perception, SmoothPerception) else ()

    def extrapolates(self, state: State) -> bool:
        """Whether costs at a load are those of another that :meth:`transfer` brought from far away."""
        return isinstance(self.perception, SmoothPerception) and self.perception.extrapolates(state)

    @property
    def informed(self) -> bool:
        """Whether a prior says what to expect; the estimator does from the first window with executions."""
        return isinstance(self.perception, SmoothPerception) and self.perception.informed

    def transfer(self, *, synchronous: bool = False) -> None:
        """Turn everything learned so far into a prior for another server, or for the real one.

        Costs stay known, but a single measurement outweighs them, and every configuration counts as never
        measured: what looks nearly as good as the best is tried again. A table stays as greedy as after
        ``transfer_windows``, and its estimation function keeps its weights and a sample of its windows.

        Args:
            synchronous: As for the class; false because what follows usually is live.
        """
        self.perception.transfer()
        self.perception.trainer.background = not synchronous

    def start_from(self, prior: Prior) -> None:
        """Forget everything and start from a prior, which a table has not.

        Args:
            prior: What a simulation or another server says that configurations cost.
        """
        assert isinstance(self.perception, SmoothPerception), "a table has no prior"
        self.perception.start_from(prior)

    def save(self, folder: Path) -> None:
        """Write everything learned to a folder, atomically, without pickle; see ``policy_file.py``.

        Raises:
            StorageError: The folder cannot be written.
        """
        parameters = TypeAdapter(type(self.parameters)).dump_python(self.parameters, mode="json")
        write_policy(
            Path(folder),
            space=self.space,
            parameters={"perception": self.parameters.perception, **parameters},
            arrays=self.perception.arrays(),
            objective=self._objective,
        )

    @classmethod
    def load(
        cls,
        folder: Path,
        space: KnobSpace,
        *,
        objective: Objective | None = None,
        cores: float = math.nan,
        seed: int = 0,
        synchronous: bool = False,
    ) -> RRL:
        """Read a saved agent, with the parameters it was saved with.

        Args:
            folder: Where :meth:`save` wrote it.
            space: The knobs and grids it must be about.
            objective: What its costs must be those of, whatever the machine; None takes those of any.
            cores: Of the server's machine; NaN if nobody sees them: then those that it was saved with stand.
            seed: Of exploration from now on.
            synchronous: As for the class.

        Raises:
            InvalidInput: The policy is about other knobs or grids (names those that differ), or for another
                objective (names both).
            StorageError: There is no policy, or it is damaged.
        """
        folder = Path(folder)
        seed = check_seed(seed)
        manifest, arrays = read_policy(folder)
        check_knobs(folder, manifest, space)
        if objective is not None:
            check_objective(folder, manifest, objective)
        try:
            parameters = _read_parameters(manifest.parameters)
        except ValidationError as error:
            raise damaged(folder, "its parameters are not valid") from error
        agent = cls(space, parameters, seed=seed, synchronous=synchronous)
        agent._objective = manifest.objective
        try:
            agent.perception.restore(arrays)
        except ValueError as error:
            raise damaged(folder, str(error)) from error
        if isinstance(agent.perception, SmoothPerception) and math.isfinite(cores):
            agent.perception.move(cores)
        return agent

    def close(self) -> None:
        """Stop background training. May be called twice."""
        self.perception.trainer.close()


def _read_parameters(values: Mapping[str, Any]) -> RRLParameters | TableParameters:
    """Read the parameters of a saved policy. Older ones hold those of both forms; the other's are ignored."""
    if values.get("perception") == "table":
        from tuner.agents.rrl.table.parameters import TableParameters

        return TypeAdapter(TableParameters).validate_python(values)
    return TypeAdapter(RRLParameters).validate_python(values)
