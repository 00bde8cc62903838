"""The base of agents that search: they measure proposals until a budget is used, then hold the best.

Every load level has a search of its own. It begins with the best configuration of the nearest level that was
measured; the very first begins with the start. Windows on the way to a proposal count, too.

While the best is held, every window measures it, and its mean follows its last windows. When it turns out
dearer than another, the other is held and measured: a lucky measurement does not last, and a change of the
server shows.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from tuner.agents.agent import State
from tuner.agents.bookkeeper import Bookkeeper, Parameters
from tuner.agents.choice import allowed_numbers
from tuner.agents.rules import check_rules
from tuner.knobs import KnobSpace

__all__ = ["SearchAgent", "SearchParameters"]

TRIES = 16
"""Proposals that cannot be reached, in one decision, before the best reachable configuration is chosen."""
AGAIN = 20
"""Windows after which a best that was out of reach is sought again: bans end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchParameters(Parameters):
    """The constants of every search."""

    budget: int = 60
    """Windows measured at a load level before the best is held there."""

    def __post_init__(self) -> None:
        Parameters.__post_init__(self)
        check_rules(self, budget=(self.budget >= 1, "at least 1"))


S = TypeVar("S", bound=SearchParameters)


class SearchAgent(Bookkeeper[S]):
    """The base of a search; a subclass adds :meth:`_propose`."""

    constants: ClassVar[type[Any]] = SearchParameters

    def __init__(self, space: KnobSpace, parameters: S | None = None, *, seed: int = 0) -> None:
        super().__init__(space, parameters, seed=seed)
        self._targets: dict[int, int] = {}
        """Level -> the proposal on the way to which the agent is."""
        self._closed: dict[int, set[int]] = {}
        """Level -> proposals that could not be reached."""
        self._ends: dict[int, tuple[int, float, int]] = {}
        """Level -> the best measured, the grid steps left to it where the way ended, the windows then."""

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Go to the present proposal, as far as allowed; or to the best, once the budget is used."""
        allowed = allowed_numbers(self.space, allowed)
        for _ in range(TRIES):
            target, searching = self._target(state)
            choice = self._toward(target, allowed, state.configuration)
            if not searching:
                return self._hold(state, target, choice, allowed)
            if choice is not None:
                return choice
            self._targets.pop(state.level)
            self._closed.setdefault(state.level, set()).add(target)
        return self.best(state, allowed)

    def searching(self, level: int) -> bool:
        """Whether a level's budget is not used yet."""
        return self.records.windows(level) < self.parameters.budget

    @abstractmethod
    def _propose(self, level: int) -> int | None:
        """Return what to measure next at a level, better nothing in ``_closed``; None ends the search."""

    def _learn(self, state: State, configuration: int, cost: float) -> None:  # noqa: ARG002 - records keep it
        if self._targets.get(state.level) == configuration:
            del self._targets[state.level]

    def _target(self, state: State) -> tuple[int, bool]:
        """Return where to go, and whether that is a proposal rather than the best measured."""
        level = state.level
        if self.searching(level):
            if level not in self._targets and (proposal := self._first_or_next(level)) is not None:
                self._targets[level] = proposal
            if level in self._targets:
                return self._targets[level], True
        least = self.records[level].least()
        return (state.configuration if least is None else least), False

    def _hold(self, state: State, best: int, toward: int | None, allowed: np.ndarray) -> int:
        """Go on toward the best measured; where no step leads nearer to it, choose the best of those allowed.

        For some windows a step must then lead nearer than to where the way ended, lest they lead to and fro.
        """
        steps, windows = self.space.distances(best)[self.space.canonical], self.records.windows(state.level)
        if toward is None:
            held = self.best(state, allowed)
            if held != state.configuration:
                self._ends[state.level] = best, float(steps[state.configuration]), windows
            return held
        target, end, then = self._ends.get(state.level, (best, math.inf, windows))
        if windows - then >= AGAIN:
            end = math.inf
        left = float(steps[toward])
        if left == 0.0:
            self._ends.pop(state.level, None)
        return toward if left < end or target != best else self.best(state, allowed)

    def _first_or_next(self, level: int) -> int | None:
        nearest = self.records.nearest(level)
        least = self.start if nearest is None else nearest.least()
        record = self.records[level]
        if least is not None and not record.windows and not self._is_closed(level, least):
            return least
        return self._propose(level)

    def _unmeasured(self, level: int, among: np.ndarray) -> np.ndarray:
        """Return those that were not measured at a level and can be reached.   # (n,) int64."""
        closed = np.array(sorted(self._closed.get(level, ())), dtype=np.int64)
        return np.setdiff1d(among[self.records[level].count[among] == 0], closed)

    def _is_closed(self, level: int, configuration: int) -> bool:
        return configuration in self._closed.get(level, ())

    def _toward(self, target: int, allowed: np.ndarray, current: int) -> int | None:
        """Return the allowed configuration nearest to a target; None if the present one is as near."""
        canonical = self.space.canonical[allowed]
        if (hits := allowed[canonical == target]).size:
            return int(hits[0])
        distances = self.space.distances(target)
        choice = int(allowed[np.argmin(distances[allowed])])
        here = float(distances[current]) if current != target else math.inf
        return choice if distances[choice] < here else None
