"""The ensembles that use a model: a change of it can take them out of service.

Triton takes a configuration that such an ensemble cannot do with, such as a batch limit below the ensemble's,
and then serves the ensemble no more. Nothing but what the server says of its models tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from tuner.adapters.live.waiting import comes_true
from tuner.adapters.triton.configuration import model_limit
from tuner.errors import AdapterError, UnknownModel

__all__ = ["READY", "Neighbours"]

READY = "READY"
LOADING = "LOADING"
WAIT = 5.0
"""Longest wait for those that were ready, s: an ensemble is loaded again within a moment, or not at all."""
MOST_ASKED = 200
"""Models; where a server has more, none is asked whether it is an ensemble: that would take too long."""
LAG = 0.5
"""How long after a model a server that reads files has looked at its ensembles, s."""


class Neighbours:
    """The ensembles of a server that name a model. Of the other models each is asked once whether it is one.

    Args:
        model: The name of the model.
        states: Asks the server for the states of its other models, by name.
        config_of: Asks the server for the configuration of another model.
        by_file: Whether changes are made through the model's file: the server goes on after the model runs.
    """

    def __init__(
        self,
        model: str,
        states: Callable[[], Mapping[str, str]],
        config_of: Callable[[str], Mapping[str, Any]],
        *,
        by_file: bool = False,
    ) -> None:
        self._model, self._states, self._config_of, self._by_file = model, states, config_of, by_file
        self._others: set[str] = set()  # what does not name the model

    def ensembles(self) -> dict[str, int]:
        """Return the batch limits of the ensembles that name the model and are ready now, by name.

        Where the server does not say, or has very many models, none is known.
        """
        found: dict[str, int] = {}
        # Without an index, or a permission, nothing is known; what has just been unloaded cannot be asked.
        with suppress(AdapterError, UnknownModel):
            ready = [name for name, state in self._states().items() if state == READY]
            for name in ready if len(ready) <= MOST_ASKED else ():
                if name in self._others:
                    continue
                config = self._config_of(name)  # also of one that is known: it may have been deployed anew
                steps = config.get("ensemble_scheduling", {}).get("step", [])
                if any(step.get("model_name") == self._model for step in steps):
                    found[name] = model_limit(config)
                else:
                    self._others.add(name)
        return found

    def largest(self) -> tuple[int, str]:
        """Return the largest batch limit of such an ensemble, and its name; 0 if there is none."""
        return max(((limit, name) for name, limit in self.ensembles().items()), default=(0, ""))

    def lost(self, ready: Collection[str]) -> list[str]:
        """Return which are not ready any more, nor being loaded, after they had time to become so again.

        Those that the server does not list any more are left out: somebody has removed them.

        Args:
            ready: The names of the ensembles that were ready before a change.
        """
        if not ready:
            return []
        if self._by_file:
            time.sleep(LAG)
        away: dict[str, str] = {}

        def all_ready() -> bool:
            away.clear()  # while the server does not answer, nobody knows
            states = self._states()
            away.update({name: states[name] for name in ready if states.get(name, READY) != READY})
            return not away

        comes_true(all_ready, WAIT, despite=(AdapterError,))
        return sorted(name for name, state in away.items() if state != LOADING)
