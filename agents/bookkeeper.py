"""The base of all agents but RRL: it remembers mean costs, answers from them, and saves and loads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from tuner.agents.agent import State, check_seed
from tuner.agents.choice import allowed_numbers, cheapest, stay
from tuner.agents.load_levels import LoadLevels
from tuner.agents.policy_file import StoredArrays, check_knobs, damaged, read_policy, write_policy
from tuner.agents.records import SLOWEST, Records
from tuner.agents.rules import check_rules
from tuner.errors import InvalidInput
from tuner.knobs import KnobSpace

__all__ = ["Bookkeeper", "Parameters"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameters:
    """The constants that every such agent has."""

    start: int | None = None
    """Number of the configuration that a search begins with, and of which `clipper_aimd` turns one knob; None
    for the default one. The others begin with the configuration in force."""
    noise: float = 0.15
    """Relative noise of one window; ``best`` adds one standard error to a mean cost, as RRL's does."""
    levels: LoadLevels = field(default_factory=LoadLevels)
    """The grid of arrival rates, whose points are the states."""

    def __post_init__(self) -> None:
        check_rules(
            self,
            start=(self.start is None or self.start >= 0, "the number of a configuration, from 0 on"),
            noise=(self.noise >= 0, "at least 0"),
        )


P = TypeVar("P", bound=Parameters)


class Bookkeeper(ABC, Generic[P]):
    """The base of an agent. A subclass adds :meth:`select`, and :meth:`_learn` to learn more than mean costs.

    What it draws it draws from ``_generator``, so that the same seed and windows give the same decisions.

    Args:
        space: The configurations.
        parameters: The constants; by default those of the class.
        seed: Of everything it draws.

    Attributes:
        records: What was measured.
        objective: What the costs are those of, in words; None if nobody said.
    """

    name: ClassVar[str]
    """The name of the agent in the catalogue and in saved policies."""
    constants: ClassVar[type[Any]] = Parameters
    """The class of its parameters."""

    def __init__(self, space: KnobSpace, parameters: P | None = None, *, seed: int = 0) -> None:
        self.space = space
        self.parameters: P = parameters or self.constants()
        start = self.parameters.start
        if start is not None and start >= space.size:
            problem = f"there is no configuration {start}"
            raise InvalidInput("parameter start", problem, f"they are numbered from 0 to {space.size - 1}")
        first = space.default if start is None else space.decode(start)
        self.start = int(space.canonical[space.encode(first)])
        self.records = Records(space)
        self.objective: str | None = None
        self._generator = np.random.default_rng(check_seed(seed))

    @property
    def levels(self) -> LoadLevels:
        """The grid of arrival rates, whose points are the states."""
        return self.parameters.levels

    @abstractmethod
    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Choose the next configuration; see :class:`~tuner.agents.agent.Agent`."""

    def best(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Return the measured configuration with the least mean cost, one standard error added.

        A level that was never measured is answered from the nearest one. Where nothing allowed was measured,
        the configuration in force stays, unless the agent knows better (:meth:`_best_unmeasured`). Among
        equals the one in force wins, then the lowest number.
        """
        allowed = allowed_numbers(self.space, allowed)
        record = self.records.nearest(state.level)
        if record is None:
            return self._best_unmeasured(state, allowed)
        numbers = self.space.canonical[allowed]
        windows = np.clip(record.count[numbers], 1, 1 / SLOWEST)
        costs = record.cost[numbers] * (1.0 + self.parameters.noise / np.sqrt(windows))
        best = cheapest(costs, allowed, state)
        return self._best_unmeasured(state, allowed) if best is None else best

    def update(  # the signature is the contract's
        self,
        state: State,
        configuration: int,
        cost: float,
        next_state: State,  # noqa: ARG002
    ) -> None:
        """Learn from one window.

        Raises:
            ValueError: The cost is not finite or negative; nothing is learned.
        """
        number = self.records.add(state.level, configuration, cost)
        self._learn(state, number, cost)

    def costs(self, level: int) -> np.ndarray:
        """Return the mean measured cost per configuration; NaN where nothing was measured.   # (size,)."""
        return self.records.costs(level)

    def save(self, folder: Path) -> None:
        """Write everything learned to a folder, atomically, without pickle; see ``policy_file.py``.

        Raises:
            StorageError: The folder cannot be written.
        """
        write_policy(
            Path(folder),
            space=self.space,
            agent=self.name,
            parameters=TypeAdapter(self.constants).dump_python(self.parameters, mode="json"),
            arrays=self.records.arrays() | self._arrays(),
            objective=self.objective,
        )

    @classmethod
    def load(cls, folder: Path, space: KnobSpace, *, seed: int = 0) -> Self:
        """Read a saved agent, with the parameters it was saved with.

        Args:
            folder: Where :meth:`save` wrote it.
            space: The knobs and grids it must be about.
            seed: Of everything drawn from now on.

        Raises:
            InvalidInput: It is another agent's or about other knobs or grids, or the seed is negative.
            StorageError: There is no policy, or it is damaged.
        """
        folder = Path(folder)
        check_seed(seed)  # here, because an error below is blamed on the policy
        manifest, arrays = read_policy(folder, cls.name)
        check_knobs(folder, manifest, space)
        try:
            parameters = TypeAdapter(cls.constants).validate_python(manifest.parameters)
            agent = cls(space, parameters, seed=seed)
            agent.objective = manifest.objective
            agent._restore(arrays)
        except (ValidationError, ValueError, IndexError) as error:
            raise damaged(folder, "its parameters or values are not valid") from error
        return agent

    def close(self) -> None:
        """Stop background work; there is none. May be called twice."""

    def _learn(self, state: State, configuration: int, cost: float) -> None:
        """Learn from a window what is more than the mean cost of its configuration; nothing by default."""

    def _best_unmeasured(self, state: State, allowed: np.ndarray) -> int:
        """Return the best configuration where none of those allowed was ever measured: the one in force."""
        return stay(state, allowed)

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return what to save beside the records."""
        return {}

    def _restore(self, arrays: StoredArrays) -> None:
        """Take over saved arrays."""
        levels = arrays.take("record_level", (None,), "i")
        numbers, counts = (
            arrays.take(f"record_{name}", levels.shape, "i") for name in ("configuration", "count")
        )
        self.records.restore(levels, numbers, counts, arrays.take("record_cost", levels.shape))
