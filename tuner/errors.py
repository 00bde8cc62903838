"""The errors that users and callers can meet.

::

    TunerError
    ├── InvalidInput            the caller's mistake: names the setting and the fix (also a ValueError)
    │   └── UnknownModel        the server does not serve a model of that name
    ├── UnsupportedPlatform     the embedded server cannot run here
    ├── StorageError            a file or folder cannot be written or read
    │   ├── Damaged             a store of ours was changed by something else than this program
    │   └── Unavailable         it cannot be used at present: the disk is full, or another program locks it
    └── AdapterError            the world's failure, seen through an adapter
        ├── Unreachable         no answer from the server
        ├── TimedOut            an answer began but did not come in time
        │   └── StillLoading    the server goes on with a change, and may come to run it later
        ├── ReadOnly            the server does not accept changes; observing still works
        └── Refused             the server refused a configuration; the old one still serves

Every one of them ends the command line with exit code 2 (`Unavailable` with 75: trying again may do) and its
message as the only output.
Messages name the setting and the fix: ``metrics port 8002: connection refused; start Triton with
--allow-metrics=true or correct '?metrics=' in the target``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from tuner.printable import one_line, printable

__all__ = [
    "AdapterError",
    "Damaged",
    "InvalidInput",
    "ReadOnly",
    "Refused",
    "StillLoading",
    "StorageError",
    "TimedOut",
    "TunerError",
    "Unavailable",
    "UnknownModel",
    "Unreachable",
    "UnsupportedPlatform",
    "check_choice",
]


LONGEST_MESSAGE = 4000
"""Characters; messages quote servers and files, and go into logs, stores and answers."""
FLAG = re.compile(r"--[a-z]+(?:-[a-z]+)*")
"""An option of the command line in a message."""
NAMED = 50
"""Models of a server that a message lists."""


class TunerError(Exception):
    """Base of all errors that servetune raises on purpose.

    Args:
        message: For people; what a terminal would obey in it, such as in a server's words, is left out, and
            so is the end of one that is very long. An error in its place gives its message: that is how
            gymnasium's ``AsyncVectorEnv`` raises again what a worker raised.
    """

    def __init__(self, message: str | TunerError = "") -> None:
        message = str(message)
        cut = message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 3]}..."
        super().__init__(printable(cut))

    def __reduce__(self) -> tuple[Any, ...]:
        """Reach another process as it is: a subclass may take other arguments than its message."""
        return _remade, (type(self), str(self)), vars(self)


Kind = TypeVar("Kind", bound=TunerError)
Choice = TypeVar("Choice", bound=str)


def _remade(kind: type[Kind], message: str) -> Kind:
    """Return an error with a message that it had before."""
    return kind.__new__(kind, message)


class InvalidInput(TunerError, ValueError):
    """A setting has a value that cannot be used.

    Args:
        setting: The name the user knows it by, such as ``--slo`` or ``knob max_batch_size``.
        problem: What is wrong, with the value.
        fix: What to write instead.
    """

    def __init__(self, setting: str | InvalidInput, problem: str = "", fix: str = "") -> None:
        if isinstance(setting, InvalidInput):  # see `TunerError`
            super().__init__(setting)
            self.setting: str = setting.setting
            return
        super().__init__(f"{setting}: {problem}" + (f"; {fix}" if fix else ""))
        self.setting = setting

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return this error with options called what another caller knows them by.

        Args:
            names: Option of the command line -> the name to say instead.
        """
        said = FLAG.sub(lambda found: names.get(found[0], found[0]), str(self))
        other = _remade(type(self), said)
        vars(other).update(vars(self), setting=names.get(self.setting, self.setting))
        return other


def check_choice(setting: str, value: object, known: Iterable[Choice]) -> Choice:
    """Return the value of a setting, which is one of those there are.

    Raises:
        InvalidInput: It is not; lists them.
    """
    names = tuple(known)
    for name in names:
        if name == value:
            return name
    raise InvalidInput(setting, f"there is no {value!r}", f"use one of {', '.join(names)}")


class UnknownModel(InvalidInput):
    """The server answers but does not serve a model of that name, or not the version that was named.

    Args:
        model: The name.
        available: What it serves instead: models, or the model's versions; None if it does not say.
        version: The version, if it is that which is not served.
    """

    def __init__(
        self, model: str | UnknownModel, available: Sequence[str] | None = None, *, version: str = ""
    ) -> None:
        if isinstance(model, UnknownModel):  # see `TunerError`
            super().__init__(model)
            self.available: tuple[str, ...] = model.available
            return
        names = list(map(one_line, available or ()))
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        kind, what = ("versions", f"version {version} of ") if version else ("models", "")
        loaded = "" if available is None else f"{kind} loaded: {', '.join(names[:NAMED]) or 'none'}{more}"
        super().__init__("model", f"the server does not serve {what}'{one_line(model)}'", loaded)
        self.available = tuple(available or ())


class UnsupportedPlatform(TunerError):
    """An embedded server cannot run on this machine."""


class StorageError(TunerError):
    """A file or folder cannot be read or written (full disk, missing right, damaged file)."""


class Damaged(StorageError):
    """The daemon's store holds what no daemon wrote, or SQLite cannot read it."""


class Unavailable(StorageError):
    """The daemon's store cannot be used at present: its disk is full or fails, or a program locks it."""


class AdapterError(TunerError):
    """A serving backend failed; the subclasses say how.

    Args:
        message: It may repeat the server's words, so it is kept to one line that is not endless.
    """

    taken_back = False
    """Whether one of several replicas refused the change, and the others were asked to go back."""

    def __init__(self, message: str | TunerError = "") -> None:
        super().__init__(one_line(str(message), LONGEST_MESSAGE))


class Unreachable(AdapterError):
    """The server does not answer."""


class TimedOut(AdapterError):
    """The server answered too late, or did not finish in time."""


class StillLoading(TimedOut):
    """The server goes on with a change although our waiting has ended, and may come to run it later."""


class ReadOnly(AdapterError):
    """The server does not accept configuration changes; observing it still works."""


class Refused(AdapterError):
    """The server refused a configuration and still serves the old one."""
