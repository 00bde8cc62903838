"""The command that an operator declares for restarting a server, run as a guest that is not trusted.

It is run without a shell, in a session of its own, so that Ctrl-C in our terminal does not end it halfway. It
has ended when its own process has: a server that it started in the background may keep its output open. The
token for the daemon's web interface is not in its environment, and what it prints is kept up to a limit.

Before every use the file is checked: another user who could replace it could run anything in our name.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tuner.adapters.live.waiting import longer
from tuner.errors import AdapterError, InvalidInput, Refused, TimedOut
from tuner.interruption import uninterrupted
from tuner.printable import one_line

__all__ = ["BATCH_THREADS", "RESTART_KNOBS", "RestartCommand", "words"]

BATCH_THREADS = "batch_threads"
RESTART_KNOBS = (BATCH_THREADS, "inter_op", "intra_op")
"""``num_batch_threads``, ``tensorflow_inter_op_parallelism``, ``tensorflow_intra_op_parallelism``."""
LONGEST_ANSWER = 10.0
"""Longest wait for the command to say what runs, s."""
LARGEST_OUTPUT = 65_536
"""Bytes that are kept of what a command prints: the last ones."""
AFTERMATH = 0.2
"""Wait for the last words of a command that has ended, s; only if its output is still open elsewhere."""
SECRETS = ("SERVETUNE_TOKEN",)
"""Variables of our environment that are not for the command."""
_NUMBER = re.compile(r"[0-9]{1,6}")


class RestartCommand:
    """The operator's command.

    Args:
        path: An executable file, run without a shell.

    Raises:
        InvalidInput: It cannot be executed, or somebody else could replace it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._check()

    def __str__(self) -> str:
        return str(self._path)

    def ask(self) -> dict[str, float]:
        """Ask the command for the values that the server runs with.

        Raises:
            AdapterError: It fails, does not print them, or prints others.
        """
        said: dict[str, float] = {}
        for word in self._run([], LONGEST_ANSWER).split():
            name, equals, value = word.partition("=")
            if not equals:
                continue
            if name not in RESTART_KNOBS or name in said or not _NUMBER.fullmatch(value):
                problem = f"{self._path} without arguments prints {one_line(word, 100)!r}"
                raise AdapterError(f"{problem}; it shall print {_ANSWER} and nothing else that has a =")
            said[name] = float(value)
        if missing := set(RESTART_KNOBS) - set(said):
            problem = f"{self._path} without arguments does not print {min(missing)}=N"
            raise AdapterError(f"{problem}; the server's process cannot be seen, so it shall print {_ANSWER}")
        return said

    def restart(self, values: Mapping[str, float], timeout: float) -> None:
        """Restart the server with these values.

        Raises:
            Refused: The command failed, or its file is not safe to run any more.
            TimedOut: It did not end in time.
        """
        with uninterrupted():
            try:
                self._run(words(values).split(), timeout)
            except TimedOut as late:
                raise TimedOut(f"{late}; {longer(timeout)}") from late

    def _check(self) -> None:
        """Refuse a file that cannot be run, or that another user could replace.

        Raises:
            InvalidInput: It must not be run.
        """
        setting, path = "TARGET restart", self._path
        try:
            about = path.stat()
        except OSError as error:
            raise InvalidInput(setting, f"{path}: {error.strerror or error}", "restore it") from error
        if not stat.S_ISREG(about.st_mode) or not os.access(path, os.X_OK):
            raise InvalidInput(setting, f"{path} is not executable", f"chmod +x {path}")
        for place in (path, *path.resolve().parents):
            found = about if place is path else place.stat()
            if found.st_uid not in (0, os.geteuid()):
                problem = f"{place} belongs to another user (number {found.st_uid})"
                raise InvalidInput(setting, problem, "let it belong to root or to the user of servetune")
            shared = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX  # such as /tmp
            if found.st_mode & stat.S_IWOTH and not shared:
                raise InvalidInput(setting, f"{place} can be written by anybody", f"chmod o-w {place}")

    def _run(self, arguments: list[str], timeout: float) -> str:
        """Run the command and return what it printed on its standard output."""
        try:
            self._check()  # what was safe when the target was opened may not be so any more
            process = subprocess.Popen(
                [str(self._path), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={name: value for name, value in os.environ.items() if name not in SECRETS},
                start_new_session=True,
            )
        except InvalidInput as error:
            raise Refused(str(error)) from error
        except OSError as error:
            raise Refused(f"{self._path} cannot be run: {error.strerror or error}") from error
        assert process.stdout is not None
        assert process.stderr is not None
        printed, complained = _Tail(process.stdout), _Tail(process.stderr)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)  # with what it started, as far as that is in its session
            process.wait()
            raise TimedOut(f"{self._path} did not end within {timeout:g} s") from error
        if code:
            said = (complained.text().strip() or printed.text().strip() or "it said nothing").splitlines()[-1]
            raise Refused(f"{self._path} failed with exit code {code}: {one_line(said)}")
        return printed.text()


class _Tail:
    """The end of what a process prints.

    A thread reads to the end, however much that is and whoever holds the other end: a process that finds its
    output closed would be ended by the system.

    Args:
        stream: Where it prints to.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._kept = b""
        self._thread = threading.Thread(target=self._read, name="restart-output", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream:
            while data := os.read(self._stream.fileno(), LARGEST_OUTPUT):
                self._kept = (self._kept + data)[-LARGEST_OUTPUT:]

    def text(self) -> str:
        """Return what was printed until now; the process itself must have ended."""
        self._thread.join(AFTERMATH)
        return self._kept.decode(errors="replace")


def words(values: Mapping[str, float]) -> str:
    """Return the values of all three as the words that a command is given."""
    return " ".join(f"{name}={values[name]:.0f}" for name in RESTART_KNOBS)


_ANSWER = " ".join(f"{name}=N" for name in RESTART_KNOBS)
