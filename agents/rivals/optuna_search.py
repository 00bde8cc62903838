"""The base of searches with an Optuna sampler: one sampler per load level, with what was measured there.

Every knob is an integer, its step on the grid, so that neighbouring values are one apart whatever their unit.
The sampler gets the logarithm of the mean cost of every configuration measured at the level, proposed or not.

Optuna sometimes proposes what was measured already. Then it is asked again; after some tries the agent
proposes an unmeasured neighbour of the best so far, or else any unmeasured configuration. Windows are dear,
and the best is measured often enough while it is held.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tuner.agents.log_cost import log_cost
from tuner.agents.records import LevelCosts
from tuner.agents.rivals.search import SearchAgent, SearchParameters
from tuner.agents.rules import check_rules
from tuner.agents.threads import one_blas_thread
from tuner.knobs import KnobSpace

if TYPE_CHECKING:
    import optuna

__all__ = ["OptunaParameters", "OptunaSearch"]


@dataclass(frozen=True, kw_only=True, slots=True)
class OptunaParameters(SearchParameters):
    """The constants of a search with a sampler."""

    startup: int = 10
    """Configurations drawn uniformly at a level before the sampler's model is used."""
    history: int = 200
    """Configurations that the model is built on at most: the cheapest, and a sample of the others."""
    ceiling: float = 3.0
    """Costs count as at most this times the least: how bad overload is says nothing about the good ones."""
    tries: int = 4
    """Proposals that it is asked for, at most, to find one that was not measured yet."""

    def __post_init__(self) -> None:
        SearchParameters.__post_init__(self)
        check_rules(
            self,
            startup=(self.startup >= 1, "at least 1"),
            history=(self.history >= 10, "at least 10"),
            ceiling=(self.ceiling > 1, "above 1"),
            tries=(self.tries >= 1, "at least 1"),
        )


class OptunaSearch(SearchAgent[OptunaParameters]):
    """The base of a search with a sampler; a subclass adds :meth:`_sampler`."""

    constants: ClassVar[type[Any]] = OptunaParameters

    def __init__(
        self, space: KnobSpace, parameters: OptunaParameters | None = None, *, seed: int = 0
    ) -> None:
        import optuna

        super().__init__(space, parameters, seed=seed)
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would log every study
        self._seed = seed
        self._samplers: dict[int, optuna.samplers.BaseSampler] = {}
        self._distributions: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.IntDistribution(0, length - 1)
            for name, length in zip(space.names, space.shape, strict=True)
        }

    @property
    def _told(self) -> int:
        """Configurations that a sampler is told of at least; its model is used from so many on."""
        return min(self.parameters.startup, self.parameters.history)

    @abstractmethod
    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        """Make a sampler."""

    def _propose(self, level: int) -> int | None:
        record = self.records[level]
        unmeasured = self._unmeasured(level, self.space.distinct)
        if not unmeasured.size:
            return None
        if record.measured.size < self.parameters.startup:
            return int(self._generator.choice(unmeasured))
        study = self._study(level, record)
        for _ in range(self.parameters.tries):
            with one_blas_thread():
                steps = study.ask(self._distributions).params
            number = int(
                np.ravel_multi_index(tuple(steps[name] for name in self.space.names), self.space.shape)
            )
            number = int(self.space.canonical[number])
            if number in unmeasured:
                return number
        best = record.least()
        beside = np.intersect1d(self.space.canonical[self.space.neighbours(best or 0)], unmeasured)
        return int(self._generator.choice(beside if beside.size else unmeasured))

    def _study(self, level: int, record: LevelCosts) -> optuna.Study:
        """Return a study with the level's sampler and everything measured there."""
        import optuna

        if level not in self._samplers:
            words = np.random.SeedSequence([self._seed, level % 2**32]).generate_state(1)
            with warnings.catch_warnings():  # samplers that Optuna still calls experimental
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                self._samplers[level] = self._sampler(int(words[0]))
        study = optuna.create_study(sampler=self._samplers[level])
        remembered = record.remembered(self.parameters.history, self._generator)
        ceiling = self.parameters.ceiling * float(record.cost[remembered].min())
        study.add_trials(
            [
                optuna.trial.create_trial(
                    params=dict(zip(self.space.names, map(int, self.space.coordinates[c]), strict=True)),
                    distributions=self._distributions,
                    value=log_cost(min(float(record.cost[c]), ceiling)),
                )
                for c in remembered
            ]
        )
        return study
