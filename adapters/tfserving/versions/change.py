"""Changes what serves by a new version folder: all of it or nothing, verified by reading back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from tuner.adapters.tfserving.client import VersionState, VersionStatus
from tuner.adapters.tfserving.versions.folders import Marker, Versions
from tuner.adapters.tfserving.versions.steering import Steering
from tuner.errors import AdapterError, Refused, TimedOut

__all__ = ["VersionControl", "prune", "publish", "withdraw"]

POLL = 0.05
"""How often the server is asked whether a version has come or gone, s."""
LINGER = 5.0
"""Longest wait for a version that is no longer wanted to be unloaded, s."""
KEPT_LOADED = 2
"""Versions of ours that may stay loaded beside the serving one, where the policy keeps old ones."""


class VersionControl(Protocol):
    """What a change needs of a server."""

    def versions(self) -> dict[int, VersionStatus]:
        """Return what the server says of each version."""
        ...

    def serving(self) -> int:
        """Return the version that requests go to."""
        ...


def publish(
    control: VersionControl,
    versions: Versions,
    steering: Steering,
    *,
    source: int,
    marker: Marker,
    batching: str | None,
    timeout: float,
) -> None:
    """Have the server serve a new version.

    Args:
        control: The server.
        versions: The model's folder.
        steering: Brings requests to the version.
        source: The version whose files it has.
        marker: Its number, and where it comes from.
        batching: The text of its parameter file; None for no file.
        timeout: Longest wait for it to be loaded, s.

    Raises:
        Refused: It cannot be made or loaded; the old version serves and the new one is gone.
        TimedOut: It was not loaded in time; the old version serves and the new one is gone.
        AdapterError: The server cannot be asked; the new version is gone.
    """
    number = marker.number
    versions.publish(source, marker, batching)
    try:
        steering.admit(number)
        _wait_available(control, number, timeout)
        steering.switch(number)
        _wait(lambda: control.serving() == number, LINGER, f"version {number} is loaded, but does not serve")
    except BaseException:  # also Ctrl-C leaves no half of a change behind
        try:
            steering.revert()
        finally:
            versions.remove(number)
        raise
    _wait_unloaded(control, [source])


def withdraw(
    control: VersionControl, versions: Versions, steering: Steering, origin: int, timeout: float
) -> None:
    """Go back to the operator's own version and remove all of ours.

    Args:
        control: The server.
        versions: The model's folder.
        steering: Brings requests to the version.
        origin: The operator's version.
        timeout: Longest wait for it to be loaded again, s.

    Raises:
        TimedOut: It was not loaded in time; ours still serve.
        AdapterError: The server cannot be asked.
    """
    ours = [number for number in versions.numbers() if versions.marker(number) is not None]
    serving = control.serving()
    late = f"version {origin} was not loaded again within {timeout:g} s; version {serving} still serves"
    hidden = []
    try:
        steering.admit(origin)
        # The serving one last: where a policy keeps so many versions, the others made room for it.
        hidden += [versions.hide(number) for number in ours if number != serving]
        if steering.label and serving != origin:
            _wait(lambda: _state(control, origin) is VersionState.AVAILABLE, timeout, late)
            steering.switch(origin)
        if serving in ours and not steering.label:
            hidden.append(versions.hide(serving))
        _wait(lambda: control.serving() == origin, timeout, late)
        if serving in ours and steering.label:
            hidden.append(versions.hide(serving))
    except BaseException:
        for folder in hidden:
            versions.show(folder)
        steering.revert()
        raise
    steering.dismiss(ours)
    steering.restore()
    for folder in hidden:
        versions.discard(folder)
    _wait_unloaded(control, ours)


def prune(control: VersionControl, versions: Versions, steering: Steering) -> None:
    """Remove our versions that no longer serve; never one that we did not make."""
    serving, statuses = control.serving(), control.versions()
    ours = [n for n in versions.numbers() if n != serving and versions.marker(n) is not None]
    loaded = [n for n in ours if n in statuses and statuses[n].state is not VersionState.END]
    surplus = set(ours) - set(loaded[-KEPT_LOADED:])
    steering.dismiss(surplus)
    for number in surplus:
        versions.remove(number)


def _wait_available(control: VersionControl, number: int, timeout: float) -> None:
    def available() -> bool:
        status = control.versions().get(number, VersionStatus(VersionState.UNKNOWN, ""))
        if status.state is VersionState.END or status.error:
            words = status.error or "it gave no reason"
            raise Refused(f"TensorFlow Serving did not load the version: {words}; the old one still serves")
        return status.state is VersionState.AVAILABLE

    problem = (
        f"version {number} was not available within {timeout:g} s; it was removed, the old one still serves"
    )
    _wait(available, timeout, problem)


def _state(control: VersionControl, number: int) -> VersionState:
    return control.versions().get(number, VersionStatus(VersionState.UNKNOWN, "")).state


def _wait_unloaded(control: VersionControl, numbers: Iterable[int]) -> None:
    """Wait a little until versions are unloaded; some policies keep them, and then that is well, too."""

    def unloaded() -> bool:
        statuses = control.versions()
        leaving = (VersionState.UNLOADING, VersionState.LOADING, VersionState.START)
        return not any(statuses[n].state in leaving for n in numbers if n in statuses)

    try:
        _wait(unloaded, LINGER, "")
    except AdapterError:
        return


def _wait(condition: Callable[[], bool], timeout: float, problem: str) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            raise TimedOut(problem)
        time.sleep(POLL)
