"""The ``tuner`` command: it is ready for Ctrl-C before it imports anything that takes time."""

from __future__ import annotations

import io
import os
import signal
import sys

__all__ = ["main"]

STOPPED = 130
"""The exit code after Ctrl-C; `ExitCode` is not imported yet."""

if sys.argv[1:2] in (["daemon"], ["dispatch"]):  # before the imports below: a SIGHUP may come meanwhile
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nothing is lost: they have not read their files yet


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, also while its modules are imported."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # a shell has it ignored for what runs in the background
        signal.signal(signal.SIGINT, _stop)
    _open_streams()
    try:
        from tuner.command import main as run

        signal.signal(signal.SIGINT, before)
        run()
    except KeyboardInterrupt:
        _stop()


def _open_streams() -> None:
    """Let standard streams that are closed lead nowhere; a file that is opened would become one of them.

    A character that the locale's encoding lacks is written as its number, and ends no command.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is this one
            os.set_inheritable(nowhere, True)
    sys.stdin, sys.stdout, sys.stderr = (
        stream or os.fdopen(number, mode)
        for number, (stream, mode) in enumerate(((sys.stdin, "r"), (sys.stdout, "w"), (sys.stderr, "w")))
    )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # else a program that calls us has put it there
            stream.reconfigure(errors="backslashreplace")


def _stop(*_: object) -> None:
    """End at once: nothing was begun. An exception could get lost in a module that is being imported."""
    os.write(2, b"stopped\n")
    os._exit(STOPPED)


if __name__ == "__main__":
    main()
