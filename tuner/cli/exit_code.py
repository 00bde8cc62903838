"""The codes with which ``tuner`` ends."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """A code of the process, with what it says; the reference lists them."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        """Return the member for a code."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    DONE = (
        0,
        "The command did what was asked. `tuner daemon` and `tuner dispatch` end so, too, when they are "
        "stopped by Ctrl-C or SIGTERM, and `tuner run` and `tuner serve` as soon as they have their server "
        "(these two also by a closed terminal).",
    )
    DIFFERENT = 1, "A comparison found a difference: `tuner dispatch --replay`, `tuner experiment same`."
    ERROR = 2, "An error: one line on standard error, which begins with `error:`."
    UNAVAILABLE = (
        75,
        "The daemon's store cannot be used at present, because the disk is full, fails or has become "
        "read-only, or another program locks the file: one line on standard error, as for 2. Trying again "
        "may do, so that the systemd unit starts the daemon again; 2 leaves it down.",
    )
    STOPPED = (
        130,
        "Ctrl-C, SIGTERM, or the terminal was closed, where the command does not usually end so (see 0); "
        "what was begun has been settled.",
    )
    NO_READER = 141, "The reader of the output has gone, as with `| head`."
