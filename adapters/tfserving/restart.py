"""Knobs that only a restart of the server changes, by a command that the operator declares.

Without a declared command there are no such knobs. A declared command is run as::

    COMMAND batch_threads=4 inter_op=0 intra_op=2

where 0 is the server's own choice. It must restart the server with these values, and return 0 when the old
one has ended. The values in use are read from the server's command line if its process is on this machine. If
not, the command is run without arguments and must print the same three words.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from tuner.adapters.live.waiting import insist
from tuner.adapters.tfserving.flags import threads
from tuner.errors import AdapterError, InvalidInput, Refused, TimedOut

__all__ = ["BATCH_THREADS", "RESTART_KNOBS", "RestartCommand", "ThreadKnobs"]

BATCH_THREADS = "batch_threads"
RESTART_KNOBS = (BATCH_THREADS, "inter_op", "intra_op")
"""``num_batch_threads``, ``tensorflow_inter_op_parallelism``, ``tensorflow_intra_op_parallelism``."""
LONGEST_ANSWER = 10.0
_WORD = re.compile(rf"({'|'.join(RESTART_KNOBS)})=(\d+)")


class RestartCommand:
    """The operator's command.

    Args:
        path: An executable file, run without a shell.

    Raises:
        InvalidInput: It cannot be executed, or every user can write it.
    """

    def __init__(self, path: Path) -> None:
        if not os.access(path, os.X_OK):
            raise InvalidInput("TARGET restart", f"{path} is not executable", f"chmod +x {path}")
        if path.stat().st_mode & 0o002:
            raise InvalidInput("TARGET restart", f"{path} can be written by anybody", f"chmod o-w {path}")
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def ask(self) -> dict[str, float]:
        """Ask the command for the values that the server runs with.

        Raises:
            AdapterError: It fails, or does not print them.
        """
        said = {name: float(value) for name, value in _WORD.findall(self._run([], LONGEST_ANSWER))}
        if missing := set(RESTART_KNOBS) - set(said):
            words = " ".join(f"{name}=N" for name in RESTART_KNOBS)
            problem = f"{self._path} without arguments does not print {min(missing)}=N"
            raise AdapterError(f"{problem}; the server's process cannot be seen, so it shall print {words}")
        return said

    def restart(self, values: Mapping[str, float], timeout: float) -> None:
        """Restart the server with these values.

        Raises:
            Refused: The command failed.
            TimedOut: It did not end in time.
        """
        self._run(_words(values).split(), timeout)

    def _run(self, arguments: list[str], timeout: float) -> str:
        try:
            done = subprocess.run(
                [str(self._path), *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TimedOut(f"{self._path} did not end within {timeout:g} s") from error
        except OSError as error:
            raise Refused(f"{self._path} cannot be run: {error.strerror or error}") from error
        if done.returncode:
            words = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
            raise Refused(f"{self._path} failed with exit code {done.returncode}: {words}")
        return done.stdout


class ThreadKnobs:
    """The knobs of the server's threads, behind the operator's command.

    Args:
        command: Restarts the server.
        flags: Returns what the server was started with, None if its process cannot be seen.
        started: Returns when its process was started, None if it cannot be seen.
        serving: Raises an AdapterError as long as the server does not answer.
        timeout: Longest wait for a restart, s.
    """

    def __init__(
        self,
        command: RestartCommand,
        flags: Callable[[], Mapping[str, str] | None],
        started: Callable[[], float | None],
        serving: Callable[[], object],
        timeout: float,
    ) -> None:
        self._command = command
        self._flags = flags
        self._started = started
        self._serving = serving
        self._timeout = timeout
        self._found = self.read()

    def read(self) -> dict[str, float]:
        """Return the values of all three.

        Raises:
            AdapterError: They cannot be read.
        """
        flags = self._flags()
        return threads(flags) if flags is not None else self._command.ask()

    def write(self, wanted: Mapping[str, float]) -> None:
        """Restart the server with these values, if it has others, and wait until it serves with them.

        Raises:
            Refused: The command failed, or the server runs with other values. It has the old ones again.
            TimedOut: The server did not come back.
            AdapterError: It cannot be asked.
        """
        before = self.read()
        values = {**before, **{name: wanted[name] for name in RESTART_KNOBS if name in wanted}}
        if values == before:
            return
        try:
            self._restart(values)
        except AdapterError as error:
            if not self._runs(before):
                self._restart(before)
            raise Refused(f"{error}; the server runs as it did") from error

    def restore(self) -> bool:
        """Restart the server with the values found at opening, if it has others; return whether it had.

        Raises:
            AdapterError: As `write`.
        """
        changed = self.read() != self._found
        self.write(self._found)
        return changed

    def _runs(self, values: Mapping[str, float]) -> bool:
        try:
            self._verify(values, None)
        except AdapterError:
            return False
        return True

    def _restart(self, values: Mapping[str, float]) -> None:
        old = self._started()
        self._command.restart(values, self._timeout)
        try:
            insist(lambda: self._verify(values, old), self._timeout)
        except AdapterError as why:
            raise TimedOut(f"{self._command} did not bring the server back: {why}") from why

    def _verify(self, values: Mapping[str, float], old: float | None) -> None:
        """Raise an error unless a server started after the old one serves with these values.

        The values alone do not prove a restart: some are read from a parameter file, which has changed even
        if the old server still runs.
        """
        if old is not None and self._started() == old:
            raise TimedOut("the old process still runs")
        self._serving()
        running = self.read()
        if running != values:
            raise Refused(f"it runs with {_words(running)} instead of {_words(values)}")


def _words(values: Mapping[str, float]) -> str:
    return " ".join(f"{name}={values[name]:.0f}" for name in RESTART_KNOBS)
