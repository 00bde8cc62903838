"""Changes what serves by a new version folder: all of it or nothing, verified by reading back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Protocol

from tuner.adapters.live.waiting import comes_true, wait_until
from tuner.adapters.rollback import IN_DOUBT
from tuner.adapters.tfserving.client import VersionState, VersionStatus
from tuner.adapters.tfserving.versions.folders import Marker, Versions
from tuner.adapters.tfserving.versions.steering import Steering
from tuner.errors import AdapterError, Refused

__all__ = ["VersionChanger", "VersionServer"]

POLL = 0.05
"""How often the server is asked whether a version has come or gone, s."""
LINGER = 5.0
"""Longest wait for a version that is no longer wanted to be unloaded, s."""
KEPT_LOADED = 2
"""Versions of ours that may stay loaded beside the serving one, where the policy keeps old ones."""
UNKNOWN = VersionStatus(VersionState.UNKNOWN, "")


class VersionServer(Protocol):
    """What a change needs to know of a server."""

    def versions(self) -> dict[int, VersionStatus]:
        """Return what the server says of each version."""
        ...

    def serving(self) -> int:
        """Return the version that requests go to."""
        ...


class VersionChanger:
    """Brings versions of ours into service and takes them away.

    Args:
        server: The server.
        versions: The model's folder.
        steering: Brings requests to a version.
        timeout: Longest wait for a version to be loaded, s.
    """

    def __init__(self, server: VersionServer, versions: Versions, steering: Steering, timeout: float) -> None:
        self._server = server
        self._versions = versions
        self._steering = steering
        self._timeout = timeout

    @property
    def steering(self) -> Steering:
        """What brings requests to a version."""
        return self._steering

    def ours(self) -> list[int]:
        """Return the versions that we made, in order, except those that another tuner gave its own label.

        Raises:
            AdapterError: The folder or the model configuration cannot be read.
        """
        others = self._steering.labelled()
        return [
            n for n in self._versions.numbers() if self._versions.marker(n) is not None and n not in others
        ]

    def leftovers(self) -> bool:
        """Whether something of ours may be left, in the folder or in the model configuration.

        Raises:
            AdapterError: They cannot be read.
        """
        return bool(self.ours() or self._versions.remains()) or self._steering.unsettled()

    def settle_label(self, serving: int) -> None:
        """Give the label back to the version that serves, if a killed tuner has written another one of ours.

        Raises:
            AdapterError: The model configuration cannot be changed.
        """
        if self._steering.stands() in set(self.ours()) - {serving}:
            self._steering.switch(serving)

    def publish(
        self, source: int, marker: Marker, batching: str | None, check: Callable[[], None] = lambda: None
    ) -> None:
        """Have the server serve a new version.

        Args:
            source: The version whose files it has.
            marker: Its number, and where it comes from.
            batching: The text of its parameter file; None for no file.
            check: Called once it is there; raises an error if somebody has deployed another one meanwhile.

        Raises:
            Refused: It cannot be made or loaded, takes the place of one that a label stands for, or somebody
                is moving our label; the old version serves and the new one is gone.
            TimedOut: It was not loaded in time; the old version serves and the new one is gone.
            AdapterError: The server cannot be asked; the new version is gone, unless it may serve.
        """
        number = marker.number
        self._make_room(source, number)
        self._versions.publish(source, marker, batching)
        try:
            check()
            self._steering.admit(number, source)
            self._wait_available(number)
            self._steering.switch(number)
            idle = f"version {number} is loaded, but does not serve"
            wait_until(lambda: self._server.serving() == number, LINGER, idle, poll=POLL)
        except BaseException:  # also Ctrl-C leaves no half of a change behind
            self._take_back(number)
            raise
        self._steering.keep()
        self._wait_unloaded([source])

    def _take_back(self, number: int) -> None:
        """Undo a version that did not come to serve.

        Raises:
            AdapterError: The label may still stand for it: it stays until another one serves, for else the
                server would refuse requests, and might not even start.
        """
        try:
            self._steering.revert()
        except AdapterError as error:
            if self._steering.label and (isinstance(error, IN_DOUBT) or self._serves(number)):
                raise AdapterError(f"{error}; version {number} may still serve") from error
        self._versions.remove(number)

    def _serves(self, number: int) -> bool:
        try:
            return self._server.serving() == number
        except AdapterError:
            return True

    def withdraw(self, origin: int) -> None:
        """Go back to the operator's own version and remove all of ours.

        Args:
            origin: The operator's version.

        Raises:
            TimedOut: It was not loaded in time; ours still serve.
            AdapterError: The server cannot be asked.
        """
        ours, serving = self.ours(), self._server.serving()
        late = f"version {origin} was not loaded again within {self._timeout:g} s"
        late += f"; version {serving} still serves"
        hidden = []
        try:
            self._steering.admit(origin)
            # The serving one last: the policy may keep only a few versions, and the others make room.
            hidden += [self._versions.hide(number) for number in ours if number != serving]
            # A tuner that was killed may have written the label and not sent it.
            if self._steering.label and (serving != origin or self._steering.stands() in ours):
                # A label can only be moved to a version that is loaded.
                wait_until(
                    lambda: self._status(origin).state is VersionState.AVAILABLE,
                    self._timeout,
                    late,
                    poll=POLL,
                )
                self._steering.switch(origin)
            if serving in ours and not self._steering.label:
                hidden.append(self._versions.hide(serving))
            wait_until(lambda: self._server.serving() == origin, self._timeout, late, poll=POLL)
            if serving in ours and self._steering.label:
                hidden.append(self._versions.hide(serving))
        except BaseException:
            for folder in hidden:
                self._versions.show(folder)
            self._steering.revert()
            raise
        self._steering.dismiss([*ours, *self._steering.strays(self._versions.numbers())])
        self._steering.restore([n for n in self._versions.numbers() if self._versions.marker(n) is not None])
        for folder in hidden:
            self._versions.discard(folder)
        self._wait_unloaded(ours)

    def prune(self) -> None:
        """Remove our versions that no longer serve; never one that we did not make."""
        serving, statuses = self._server.serving(), self._server.versions()
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
        """Return the versions that must stay loaded, because a label stands for them."""
        return self._steering.labelled() | ({serving} if self._steering.label else set())

    def _make_room(self, source: int, new: int) -> None:
        """Remove our idle versions if a new one would have the server unload one that a label stands for.

        Raises:
            Refused: It would do so all the same.
        """
        places, before = self._steering.places(), self._versions.numbers()
        if places is None:
            return
        needed = self._needed(source) & set(before[-places:])
        if needed <= set([*before, new, new + 1][-places:]):  # the operator may deploy one meanwhile, too
            return
        self._remove(number for number in self.ours() if number != source)
        after = [*self._versions.numbers(), new]
        if lost := needed - set(after[-places:]):
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

    def _status(self, number: int) -> VersionStatus:
        return self._server.versions().get(number, UNKNOWN)

    def _wait_available(self, number: int) -> None:
        def available() -> bool:
            status = self._status(number)
            if status.state is VersionState.END or status.error:
                words = status.error or "it gave no reason"
                raise Refused(
                    f"TensorFlow Serving did not load the version: {words}; the old one still serves"
                )
            return status.state is VersionState.AVAILABLE

        late = f"version {number} was not available within {self._timeout:g} s; it was removed"
        wait_until(available, self._timeout, f"{late}, the old one still serves", poll=POLL)

    def _wait_unloaded(self, numbers: Iterable[int]) -> None:
        """Wait a little until versions are unloaded. Some policies keep them, and that is no failure."""

        def unloaded() -> bool:
            leaving = (VersionState.UNLOADING, VersionState.LOADING, VersionState.START)
            statuses = self._server.versions()
            return not any(statuses[n].state in leaving for n in numbers if n in statuses)

        with suppress(AdapterError):
            comes_true(unloaded, LINGER, poll=POLL)
