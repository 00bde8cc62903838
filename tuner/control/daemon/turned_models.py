"""Which models the targets of a daemon turn: an ensemble turns those that it is made of.

A file in which two targets name one model is refused when it is read. That they turn one model by way of an
ensemble shows only when their servers have been asked.
"""

from __future__ import annotations

import threading

from tuner.adapters.place import Place, turned_places
from tuner.control.daemon.config import TargetConfig
from tuner.errors import InvalidInput
from tuner.profiler.attachment import Attachment

__all__ = ["TurnedModels"]


class TurnedModels:
    """The models that each target turns; two targets that turn one would undo what the other does.

    Only targets in mode `apply` turn any. One keeps its models also while its server is away, or else the two
    would take turns. The methods may be called from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[str, frozenset[Place]] = {}  # by the target's name

    def take(self, config: TargetConfig, attachment: Attachment) -> None:
        """Note what a target turns from now on, until :meth:`release`.

        Raises:
            InvalidInput: Another target turns one of these models already.
        """
        if config.mode != "apply":
            return
        places = turned_places(config.url, attachment.description)
        with self._lock:
            for other, others in self._places.items():
                if other != config.name and (shared := min(places & others, default=None)) is not None:
                    problem = f"'{other}' turns {shared}, too, and each would undo what the other does"
                    raise InvalidInput("url", problem, "give one of the two mode: recommend, or remove it")
            self._places[config.name] = places

    def release(self, config: TargetConfig) -> None:
        """Let others turn what a target has turned, if it has."""
        with self._lock:
            self._places.pop(config.name, None)
