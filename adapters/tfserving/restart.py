"""Knobs that only a restart of the server changes, by a command that the operator declares.

Without a declared command there are no such knobs. A declared command is run as::

    COMMAND batch_threads=4 inter_op=0 intra_op=2

where 0 is the server's own choice. It must restart the server with these values, and return 0 when the old
one has ended. The values in use are read from the server's command line, and the parameter file that it
names, if they can be seen from here. If not, the command is run without arguments and must print the same
three words, and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner.adapters.live.waiting import insist, longer
from tuner.adapters.tfserving.flags import threads
from tuner.adapters.tfserving.restart_command import RESTART_KNOBS, RestartCommand, words
from tuner.errors import AdapterError, Refused, TimedOut

__all__ = ["ThreadKnobs"]


class ThreadKnobs:
    """The knobs of the server's threads, behind the operator's command.

    Args:
        command: Restarts the server.
        flags: Returns what the server was started with, None if its process cannot be seen.
        process: Returns its process, which equals itself alone; None if it cannot be seen.
        serving: Raises an AdapterError as long as the server does not answer.
        timeout: Longest wait for a restart, s.
    """

    def __init__(
        self,
        command: RestartCommand,
        flags: Callable[[], Mapping[str, str] | None],
        process: Callable[[], object | None],
        serving: Callable[[], object],
        timeout: float,
    ) -> None:
        self._command = command
        self._flags = flags
        self._process = process
        self._serving = serving
        self._timeout = timeout
        self._found = self.read()

    def read(self) -> dict[str, float]:
        """Return the values of all three.

        Raises:
            AdapterError: They cannot be read.
        """
        flags = self._flags()
        values = threads(flags) if flags is not None else None
        if values is not None:
            return values
        self._serving()  # one that is away has no process to be seen: that is no reason to ask
        return self._command.ask()

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
            AdapterError: As for :meth:`write`.
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
        old = self._process()
        self._command.restart(values, self._timeout)
        try:
            insist(lambda: self._verify(values, old), self._timeout)
        except AdapterError as why:
            problem = f"{self._command} did not bring the server back: {why}"
            if not isinstance(why, Refused):  # it has not come back yet
                problem += f"; {longer(self._timeout)}"
            raise TimedOut(problem) from why

    def _verify(self, values: Mapping[str, float], old: object | None) -> None:
        """Raise an error unless a server with another process than the old one serves with these values.

        The values alone do not prove a restart: some are read from a parameter file, which has changed even
        if the old server still runs.
        """
        if old is not None and self._process() == old:
            raise TimedOut("the old process still runs")
        self._serving()
        running = self.read()
        if running != values:
            raise Refused(f"it runs with {words(running)} instead of {words(values)}")
