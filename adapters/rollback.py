"""Takes back changes of several backends, replicas or models: all are tried, whatever becomes of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from tuner.adapters.backend import Backend
from tuner.errors import (
    AdapterError,
    InvalidInput,
    ReadOnly,
    Refused,
    StillLoading,
    TimedOut,
    TunerError,
    Unreachable,
)
from tuner.knobs import Configuration

__all__ = [
    "IN_DOUBT",
    "NOT_EVERYWHERE",
    "UNTOUCHED",
    "Checking",
    "failure",
    "put_back",
    "restore_all",
    "restore_each",
]

IN_DOUBT = (Unreachable, TimedOut)
"""After these nobody knows whether a server was changed, or will be."""
UNTOUCHED = (InvalidInput, ReadOnly, Refused)
"""A server that answers a change with these runs what it ran before."""
NOT_EVERYWHERE = "what was found cannot be put back everywhere"
"""What a restoration says that failed at some."""


@runtime_checkable
class Checking(Protocol):
    """A backend that can be asked before a change whether it would take it."""

    def check(self, configuration: Configuration) -> None:
        """Raise what applying a configuration would raise, as far as that is known before any change.

        Raises:
            InvalidInput: A knob or its value cannot be used.
            ReadOnly: The server takes no changes.
            AdapterError: The server cannot be asked.
        """
        ...


def put_back(backends: Mapping[str, Backend], before: Mapping[str, Configuration]) -> dict[str, TunerError]:
    """Have backends run what they ran before; each is tried, whatever becomes of the others.

    Args:
        backends: By name.
        before: Name -> what it ran, of all that may have been changed.

    Returns:
        Name -> error, of those that failed.
    """
    failed: dict[str, TunerError] = {}
    for name, configuration in before.items():
        try:
            backends[name].apply(configuration)
        except TunerError as error:
            failed[name] = error
    return failed


def restore_all(backends: Mapping[str, Backend]) -> None:
    """Put back at each backend what was found at its opening, where it keeps that.

    Args:
        backends: By name; each is tried, whatever becomes of the others.

    Raises:
        AdapterError: Some refused or could not be reached; names them.
    """
    if failed := restore_each(backends):
        raise failure(NOT_EVERYWHERE, failed, "")


def restore_each(backends: Mapping[str, Backend]) -> dict[str, TunerError]:
    """As :func:`restore_all`, but return the errors of those that failed, by name."""
    failed: dict[str, TunerError] = {}
    for name, backend in backends.items():
        restore: Any = getattr(backend, "restore", None)
        try:
            if restore is not None:
                restore()
        except TunerError as error:
            failed[name] = error
    return failed


def failure(problem: str, doubtful: Mapping[str, TunerError], as_before: str) -> AdapterError:
    """Return the error of a change that failed and was taken back.

    It is a refusal only if all surely run what they ran before, and says so if one is still loading.

    Args:
        problem: Why the change failed.
        doubtful: Name -> why, of those that may run something else, now or later.
        as_before: What to say if there are none.
    """
    if not doubtful:
        return Refused(f"{problem}; {as_before}")
    names = [name if str(error) in problem else f"{name} ({error})" for name, error in doubtful.items()]
    kinds = [type(error) for error in doubtful.values() if isinstance(error, IN_DOUBT)]
    kind = StillLoading if StillLoading in kinds else next(iter(kinds), AdapterError)
    return kind(f"{problem}; not certain to run as before: {', '.join(names)}")
