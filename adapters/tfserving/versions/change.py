"""Changes what serves by a new version folder: all of it or nothing, verified by reading back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from tuner.adapters.live.waiting import comes_true, longer, wait_until
from tuner.adapters.rollback import IN_DOUBT
from tuner.adapters.tfserving.client import VersionState, VersionStatus
from tuner.adapters.tfserving.flags import NOTICED
from tuner.adapters.tfserving.versions.folders import Marker, Versions
from tuner.adapters.tfserving.versions.room import Room
from tuner.adapters.tfserving.versions.steering import Steering
from tuner.errors import AdapterError, Refused

__all__ = ["VersionChanger", "VersionServer"]

POLL = 0.05
"""How often the server is asked whether a version has come or gone, s."""
LINGER = 5.0
"""Longest wait for a version that is no longer wanted to be unloaded, s."""
UNKNOWN = VersionStatus(VersionState.UNKNOWN, "")
NOT_SEEN = (
    "; the server has not looked at it: is base_path= the folder that it serves from, and does it look there "
    "(--file_system_poll_wait_seconds)? Where its --model_config_file names versions, name that with config="
)


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
        self._room = Room(versions, steering)
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
        return self._room.ours()

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
            Refused: It cannot be made or loaded, or not in time, takes the place of one that a label stands
                for, or somebody is moving our label; the old version serves and the new one is gone.
            TimedOut: It was loaded and did not come to serve; the old version serves and the new one is gone.
            AdapterError: The server cannot be asked; the new version is gone, unless it may serve.
        """
        number = marker.number
        self._room.make(source, number)
        self._versions.publish(source, marker, batching)
        try:
            check()
            self._room.check(source, number)  # a label may have moved meanwhile
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

    def catch_up(self) -> None:
        """Have the server's labels stand where the model configuration has them.

        Raises:
            AdapterError: The model configuration cannot be read, or the server not be asked.
        """
        self.settle_label(serving := self._server.serving())
        with suppress(Refused):
            self._room.settle(serving)

    def withdraw(self, serving: int, origin: int) -> None:
        """Go back to the operator's own version and remove all of ours.

        Args:
            serving: The version that requests go to.
            origin: The operator's version.

        Raises:
            Refused: Somebody is moving our label; ours still serve.
            TimedOut: It was not loaded in time; ours still serve.
            AdapterError: The server cannot be asked.
        """
        ours = self.ours()
        late = f"version {origin} was not loaded again within {self._timeout:g} s"
        late += f"; version {serving} still serves; {longer(self._timeout)}"
        hidden = []
        try:
            self._steering.admit(origin, serving)
            # The serving one last: the policy may keep only a few versions, and the others make room.
            hidden += [self._versions.hide(number) for number in ours if number != serving]
            if self._steering.label and serving != origin:
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
            # If the operator withdraws that one meanwhile, another one of his serves.
            wait_until(lambda: self._server.serving() not in ours, self._timeout, late, poll=POLL)
            if serving in ours and self._steering.label:
                hidden.append(self._versions.hide(serving))
        except BaseException:
            for folder in hidden:
                self._versions.show(folder)
            self._steering.revert()
            raise
        self._steering.keep()
        self._steering.dismiss([*ours, *self._steering.strays(self._versions.numbers())])
        self._steering.restore([n for n in self._versions.numbers() if self._versions.marker(n) is not None])
        for folder in hidden:
            self._versions.discard(folder)
        self._wait_unloaded(ours)

    def prune(self) -> None:
        """Remove our versions that no longer serve; never one that we did not make."""
        self._room.prune(self._server.serving(), self._server.versions())

    def _status(self, number: int) -> VersionStatus:
        return self._server.versions().get(number, UNKNOWN)

    def _wait_available(self, number: int) -> None:
        """Wait until a version is loaded; not for long if the server does not even list it.

        Raises:
            Refused: It cannot be loaded, or was not in time.
        """
        status = UNKNOWN

        def available() -> bool:
            nonlocal status
            status = self._status(number)
            if status.state is VersionState.END or status.error:
                words = status.error or "it gave no reason"
                raise Refused(
                    f"TensorFlow Serving did not load the version: {words}; the old one still serves"
                )
            return status.state is VersionState.AVAILABLE

        def listed() -> bool:
            return available() or status.state is not VersionState.UNKNOWN

        noticed = min(NOTICED, self._timeout)
        gone = "it was removed, the old one still serves"
        if not comes_true(listed, noticed, poll=POLL):
            raise Refused(f"version {number} was not available within {noticed:g} s; {gone}{NOT_SEEN}")
        if not comes_true(available, self._timeout, poll=POLL):
            late = f"version {number} was not available within {self._timeout:g} s"
            raise Refused(f"{late}; {gone}; {longer(self._timeout)}")

    def _wait_unloaded(self, numbers: Iterable[int]) -> None:
        """Wait a little until versions are unloaded. Some policies keep them, and that is no failure."""

        def unloaded() -> bool:
            leaving = (VersionState.UNLOADING, VersionState.LOADING, VersionState.START)
            statuses = self._server.versions()
            return not any(statuses[n].state in leaving for n in numbers if n in statuses)

        with suppress(AdapterError):
            comes_true(unloaded, LINGER, poll=POLL)
