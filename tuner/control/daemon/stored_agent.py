"""Gets the agent of a target out of the store, or begins a new one, and saves it there."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.control.daemon.config import TargetConfig
from tuner.control.daemon.policy_check import why_not_used
from tuner.control.store.policies import load_policy, policy_number, policy_origin, save_policy
from tuner.control.store.store import Store
from tuner.errors import InvalidInput, StorageError
from tuner.objective import Objective

if TYPE_CHECKING:
    from tuner.agents.agent import Agent
    from tuner.knobs import KnobSpace

__all__ = ["StoredAgent"]


class StoredAgent:
    """The agent of a target, which outlives the process in the store.

    Life: `load` once, then `save` now and then. A target that is only observed has an agent that learns
    nothing, and nothing is saved.

    Args:
        config: The target and its settings; its policy is what a new agent begins from.
        store: Where the agent is kept.
        target: The target's number in it.
        objective: The objective whose costs it learns.
        synchronous: Whether it trains in the calling thread, so that it learns reproducibly.
        say: Receives why a stored agent cannot be used, or could not be saved.
    """

    def __init__(
        self,
        config: TargetConfig,
        store: Store,
        target: int,
        objective: Objective,
        *,
        synchronous: bool,
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._store = store
        self._target = target
        self._objective = objective
        self._synchronous = synchronous
        self._say = say
        self._origin: str | None = None  # as for `keep_policy`

    def load(self, space: KnobSpace, cores: float) -> tuple[Agent, int]:
        """Return the agent, and the number of the last window that it has learned from.

        Args:
            space: The knobs.
            cores: Of the server's machine; NaN if nobody knows.

        Raises:
            InvalidInput: The policy of the file cannot be used.
            StorageError: The store cannot be read.
        """
        if self._config.mode == "observe":
            from tuner.agents.idle import Idle

            return Idle(space), 0
        from tuner.agents.rrl import RRL

        policy, digest = self._config.policy, self._config.policy_digest
        number = policy_number(self._store, self._target, self._objective.key)
        self._origin = policy_origin(self._store, self._target, self._objective.key)
        if number is not None and digest and self._origin not in (None, digest):
            self._say(f"{policy} is not what the stored agent began from; a new one begins from that")
            number = None
        if number is not None and (agent := self._load_stored(space, cores)) is not None:
            return agent, number
        self._origin = digest
        if policy is not None:
            return self._load_from(policy, space, cores), 0
        seed, synchronous = self._config.seed, self._synchronous
        return RRL(space, objective=self._objective, seed=seed, synchronous=synchronous), 0

    def save(self, agent: Agent, number: int) -> None:
        """Save the agent, which has learned up to the window of a number; say so if that is not possible."""
        if self._config.mode == "observe":
            return
        try:
            save_policy(self._store, self._target, agent, number, self._objective, origin=self._origin)
        except StorageError as error:
            self._say(f"the agent could not be saved: {error}")

    def _load_stored(self, space: KnobSpace, cores: float) -> Agent | None:
        """Return the agent that is in the store; None if it cannot be used, and say why."""
        try:
            with tempfile.TemporaryDirectory(prefix="servetune-") as name:
                load_policy(self._store, self._target, Path(name), self._objective.key)
                try:
                    return self._load_from(Path(name), space, cores)
                except (InvalidInput, StorageError) as error:
                    problem = why_not_used(error).replace(name, str(self._store.path))
        except OSError as error:  # such as a full disk of temporary files
            problem = str(error)
        self._say(f"the stored agent cannot be used: {problem}")
        return None

    def _load_from(self, folder: Path, space: KnobSpace, cores: float) -> Agent:
        from tuner.agents.rrl import RRL

        return RRL.load(
            folder,
            space,
            objective=self._objective,
            cores=cores,
            seed=self._config.seed,
            synchronous=self._synchronous,
        )
