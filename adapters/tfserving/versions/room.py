"""Which of our versions stay, so that the server unloads none that a label stands for.

With the policy ``latest`` it keeps a number of the newest versions. Each of ours that is newer than a version
with a label takes a place away from that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from tuner.adapters.tfserving.client import VersionState, VersionStatus
from tuner.adapters.tfserving.versions.folders import Versions
from tuner.adapters.tfserving.versions.steering import Steering
from tuner.errors import Refused

__all__ = ["Room"]

KEPT_LOADED = 2
"""Versions of ours that may stay loaded beside the serving one, where the policy keeps old ones."""


class Room:
    """The places that a server has for versions.

    Args:
        versions: The model's folder.
        steering: Says what labels stand for, and how many versions are kept.
    """

    def __init__(self, versions: Versions, steering: Steering) -> None:
        self._versions = versions
        self._steering = steering

    def ours(self) -> list[int]:
        """Return the versions that we made, in order, except those that another tuner gave its own label.

        Raises:
            AdapterError: The folder or the model configuration cannot be read.
        """
        others = self._steering.labelled()
        return [
            n for n in self._versions.numbers() if self._versions.marker(n) is not None and n not in others
        ]

    def make(self, source: int, new: int) -> None:
        """Remove our idle versions if a new one would have the server unload one that a label stands for.

        Args:
            source: The version that serves.
            new: The new one.

        Raises:
            Refused: It would do so all the same, or a label cannot stand where the configuration has it yet.
        """
        places = self._steering.places()
        if places is None:
            return
        self.settle(source)  # else the server may need other versions than the file says
        needed, after = self._held(source, new), [*self._versions.numbers(), new, new + 1]
        if not needed <= set(after[-places:]):  # the operator may deploy one meanwhile, too
            self._remove(number for number in self.ours() if number != source)
            self._check(needed, new)

    def check(self, source: int, new: int) -> None:
        """Refuse a new version, which may be there, if the server would unload one that a label stands for.

        Raises:
            Refused: It would do so.
        """
        self._check(self._held(source, new), new)

    def settle(self, serving: int) -> None:
        """Have the server's labels stand where the configuration has them.

        Args:
            serving: The version that serves.

        Raises:
            Refused: A label is for a version that is not loaded; none of our idle ones takes its place now.
        """
        try:
            self._steering.send()
        except Refused:
            self._remove(number for number in self.ours() if number != serving)
            raise

    def prune(self, serving: int, statuses: Mapping[int, VersionStatus]) -> None:
        """Remove our versions that no longer serve.

        Args:
            serving: The version that serves.
            statuses: What the server says of each version.
        """
        with suppress(Refused):
            self.settle(serving)  # else the server may still have labels for them
        ours = [number for number in self.ours() if number != serving]
        loaded = [n for n in ours if n in statuses and statuses[n].state is not VersionState.END]
        surplus = max(len(loaded) - self._kept_loaded(serving, ours), 0)
        self._remove(set(ours) - set(loaded[surplus:]))

    def _remove(self, numbers: Iterable[int]) -> None:
        numbers = list(numbers)
        self._steering.dismiss(numbers)
        for number in numbers:
            self._versions.remove(number)

    def _needed(self, serving: int) -> set[int]:
        """Return the versions that must stay loaded, because a label stands for them or is to do so."""
        own = {serving, self._steering.stands() or serving} if self._steering.label else set()
        return self._steering.labelled() | own

    def _held(self, source: int, new: int) -> set[int]:
        """Return the versions that must stay loaded and that a new one could push out."""
        places = self._steering.places()
        if places is None:
            return set()
        others = [n for n in self._versions.numbers() if n != new]
        return self._needed(source) & set(others[-places:])

    def _check(self, needed: Collection[int], new: int) -> None:
        """Refuse a new version for which the server would unload one that is needed."""
        places, after = self._steering.places(), sorted({*self._versions.numbers(), new})
        if places is not None and (lost := set(needed) - set(after[-places:])):
            required = sum(number >= min(needed) for number in after)
            problem = f"the server keeps the {places} newest versions: with version {new} it would unload"
            problem += f" version {min(lost)}, which a label stands for"
            raise Refused(f"{problem}; set num_versions to {required} in its model configuration")

    def _kept_loaded(self, serving: int, idle: Collection[int]) -> int:
        """Return how many idle versions may stay, so that the next one pushes none out that is needed."""
        places, needed = self._steering.places(), self._needed(serving)
        if places is None or not needed:
            return KEPT_LOADED
        fixed = sum(n >= min(needed) and n not in idle for n in self._versions.numbers())
        return min(KEPT_LOADED, max(places - fixed - 1, 0))
