"""The other models of a server: a change of one can take the ensembles that use it out of service.

Triton takes a configuration that such an ensemble cannot do with, such as a batch limit below the ensemble's,
and then serves the ensemble no more. Nothing but what the server says of its models tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from tuner.adapters.live.waiting import comes_true
from tuner.adapters.triton.configuration import model_limit
from tuner.errors import AdapterError, UnknownModel

__all__ = ["READY", "Neighbours", "largest_ensemble"]

READY = "READY"
LOADING = "LOADING"
WAIT = 5.0
"""Longest wait for those that were ready, s: an ensemble is loaded again within a moment, or not at all."""
MOST_ASKED = 200
"""Models; where a server has more, none is asked whether it is an ensemble: that would take too long."""
LAG = 0.5
"""How long after a model a server that reads files has looked at its ensembles, s."""


class Neighbours:
    """What was ready before a change. One that somebody else takes out meanwhile counts for one change only.

    Args:
        states: Asks the server for the states of its other models, by name.
        by_file: Whether a change is made through the model's file: the server goes on after the model runs.
    """

    def __init__(self, states: Callable[[], Mapping[str, str]], *, by_file: bool = False) -> None:
        self._states, self._by_file = states, by_file
        self._ready: set[str] = set()
        with suppress(AdapterError):  # without an index, or a permission, nothing can be compared
            self._ready = {name for name, state in states().items() if state == READY}

    def lost(self) -> list[str]:
        """Return which are not ready any more, nor being loaded, after they had time to become so again.

        Those that the server does not list any more are left out: somebody has removed them.
        """
        if not self._ready:
            return []
        if self._by_file:
            time.sleep(LAG)
        away: dict[str, str] = {}

        def all_ready() -> bool:
            away.clear()  # while the server does not answer, nobody knows
            states = self._states()
            away.update({name: states[name] for name in self._ready & states.keys() if states[name] != READY})
            return not away

        comes_true(all_ready, WAIT, despite=(AdapterError,))
        return sorted(name for name, state in away.items() if state != LOADING)


def largest_ensemble(
    model: str, states: Callable[[], Mapping[str, str]], config_of: Callable[[str], Mapping[str, Any]]
) -> tuple[int, str]:
    """Return the largest batch limit of an ensemble that names a model, and its name; 0 if none has one.

    Args:
        model: The name of the model.
        states: As of :class:`Neighbours`.
        config_of: Asks the server for the configuration of another model.
    """
    found = 0, ""
    # One that has just been unloaded cannot be asked: a change will show what was missed.
    with suppress(AdapterError, UnknownModel):
        ready = [name for name, state in states().items() if state == READY]
        for name in ready if len(ready) <= MOST_ASKED else ():
            config = config_of(name)
            steps = config.get("ensemble_scheduling", {}).get("step", [])
            if any(step.get("model_name") == model for step in steps):
                found = max(found, (model_limit(config), name))
    return found
