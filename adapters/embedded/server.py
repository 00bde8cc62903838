"""A model server that this program starts, watches, and removes without a trace."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import tenacity

from tuner.adapters.embedded import watchdog
from tuner.adapters.embedded.cache import Progress, silent
from tuner.errors import AdapterError, InvalidInput
from tuner.printable import one_line

__all__ = ["HOST", "START_TIMEOUT", "EmbeddedServer", "free_ports"]

HOST = "127.0.0.1"
START_ATTEMPTS = 5
"""More than one, because another program may take a port after we found it free."""
START_TIMEOUT = 180.0
"""How long a server may take to become ready, s: several may start at once on a busy machine."""
STOP_TIMEOUT = watchdog.GRACE + 7.0
LOG_LINES = 12
"""Of a log that are told: so many of the last errors, and of the last lines."""
ERROR_LINE = re.compile(r"E\d{4} |error:|\w*Error\b")


class EmbeddedServer(ABC):
    """A server that lives as long as this object is open.

    ``start`` (or ``with``) downloads what is missing, starts the server on free ports of 127.0.0.1 and waits
    until its models answer. ``stop`` ends it with its children and removes its files. It also ends when this
    process dies, even if that is killed.

    Args:
        model: The model that ``target`` names.
        models: All models to serve; only ``model`` if empty.
        progress: Called with what takes long.
        start_timeout: How long the server may take to become ready, s.

    Raises:
        InvalidInput: The model is not among the models.
    """

    title: str
    """The server's name, for messages."""
    services: int
    """How many ports it listens on."""

    def __init__(
        self,
        model: str,
        *,
        models: Sequence[str] = (),
        progress: Progress = silent,
        start_timeout: float = START_TIMEOUT,
    ) -> None:
        self.model = model
        self.models = tuple(models) or (model,)
        if model not in self.models:
            raise InvalidInput("embedded model", f"'{model}' is not among the models served, {self.models}")
        self.numbers: tuple[int, ...] = (0,) * self.services
        """The ports it listens on."""
        self.pid = 0
        self._progress = progress
        self._start_timeout = start_timeout
        self._folder: Path | None = None
        self._watchdog: subprocess.Popen[str] | None = None

    @property
    def folder(self) -> Path:
        """The folder of the server's files, which lives as long as the server.

        Raises:
            InvalidInput: The server was never started.
        """
        if self._folder is None:
            raise InvalidInput("embedded server", "was never started", "call start() first")
        return self._folder

    @property
    @abstractmethod
    def target(self) -> str:
        """The URL to connect to."""

    @abstractmethod
    def _prepare(self, folder: Path) -> None:
        """Put the files that the server reads into its folder, before its first start."""

    @abstractmethod
    def _command(self, folder: Path, prefix: str) -> list[str]:
        """Return the command that runs it. Names of its shared memory should begin with ``prefix``."""

    @abstractmethod
    def _environment(self) -> Mapping[str, str]:
        """Return the variables to set for it."""

    @abstractmethod
    def _is_serving(self) -> bool:
        """Whether all its models answer."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        words = self.log_tail() if isinstance(error, AdapterError) and not self.processes() else ""
        self.stop()
        if words:
            problem = f"{error}; the embedded {self.title} has ended, the end of its log: {words}"
            raise AdapterError(problem) from error

    def start(self) -> None:
        """Start the server and wait until its models are ready.

        Raises:
            AdapterError: It cannot be downloaded, or does not become ready; the message has the end of its
                log.
            StorageError: The cache folder cannot be written.
        """
        self.stop()
        self._folder = Path(tempfile.mkdtemp(prefix=f"servetune-{type(self).__name__.lower()}-"))
        try:
            self._prepare(self._folder)
            self._launch_until_ready(new_ports=True)
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        """Start again on the same ports, after ``kill`` or while running.

        Raises:
            AdapterError: It does not become ready.
        """
        self._end_process()
        self._launch_until_ready(new_ports=False)

    def kill(self) -> None:
        """End the server at once, as a crash would; ``restart`` brings it back."""
        with contextlib.suppress(ProcessLookupError):
            if self.pid:
                os.kill(self.pid, signal.SIGKILL)
        self._end_process()

    def stop(self) -> None:
        """End the server and remove its files. May be called twice."""
        self._end_process()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def processes(self) -> list[int]:
        """Return the process ids of the server and its children; empty when it does not run."""
        try:
            server = psutil.Process(self.pid) if self.pid else None
            return [server.pid, *[child.pid for child in server.children(recursive=True)]] if server else []
        except psutil.NoSuchProcess:
            return []

    def log_tail(self) -> str:
        """Return the last errors and lines of the server's log, which show why it crashed, on one line."""
        log = self._folder / "server.log" if self._folder else None
        if log is None or not log.exists():
            return ""
        written = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        last = max(len(written) - LOG_LINES, 0)
        errors = [line for line in written[:last] if ERROR_LINE.match(line)]
        return " | ".join(one_line(line, 150) for line in (*errors[-LOG_LINES:], *written[last:]))

    def _launch_until_ready(self, *, new_ports: bool) -> None:
        for attempt in range(START_ATTEMPTS):
            if new_ports:
                self.numbers = free_ports(self.services)
            self._launch()
            try:
                self._wait_until_ready()
                return
            except AdapterError as error:
                self._end_process()
                if "in use" not in str(error).lower() or attempt == START_ATTEMPTS - 1:
                    raise

    def _launch(self) -> None:
        log = self.folder / "server.log"
        log.unlink(missing_ok=True)
        # The names of its shared memory are unique, so that no other server's is removed.
        prefix = f"servetune_{uuid.uuid4().hex[:12]}_"
        arguments = [str(os.getpid()), prefix, str(self.folder), str(log)]
        script = [sys.executable, "-I", "-S", watchdog.__file__]
        self._watchdog = subprocess.Popen(
            [*script, *arguments, *self._command(self.folder, prefix)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **self._environment()},
            start_new_session=True,
        )
        assert self._watchdog.stdout is not None
        line = self._watchdog.stdout.readline()
        if not line.strip().isdigit():
            raise AdapterError(f"the embedded {self.title} could not be started: its watchdog ended")
        self.pid = int(line)

    def _wait_until_ready(self) -> None:
        ready = tenacity.Retrying(
            stop=tenacity.stop_after_delay(self._start_timeout),
            wait=tenacity.wait_fixed(0.05),
            retry=tenacity.retry_if_result(lambda is_ready: not is_ready),
        )
        try:
            ready(self._is_ready)
        except tenacity.RetryError as error:
            problem = f"the embedded {self.title} was not ready within {self._start_timeout:g} s"
            raise AdapterError(f"{problem}; the end of its log: {self.log_tail()}") from error

    def _is_ready(self) -> bool:
        if self._watchdog is None or self._watchdog.poll() is not None:
            problem = f"the embedded {self.title} ended at its start; the end of its log: {self.log_tail()}"
            raise AdapterError(problem)
        return self._listens() and self._is_serving()

    def _listens(self) -> bool:
        """Whether it is our server that listens on its ports, not a program that took one first."""
        try:
            connections = psutil.Process(self.pid).net_connections("tcp")
        except psutil.Error:
            return False
        listening = {entry.laddr[1] for entry in connections if entry.status == psutil.CONN_LISTEN}
        return set(self.numbers[:2]) <= listening

    def _answers(self, port: int, path: str) -> bool:
        """Whether a GET of a path is answered with 200."""
        connection = http.client.HTTPConnection(HOST, port, timeout=2.0)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _end_process(self) -> None:
        """Have the watchdog end the server, and wait until it has."""
        process, self._watchdog, self.pid = self._watchdog, None, 0
        if process is None:
            return
        try:
            with contextlib.suppress(OSError):
                process.communicate(timeout=STOP_TIMEOUT)  # closes its input: the sign to end
        except subprocess.TimeoutExpired:
            process.kill()  # the kernel then ends the server
            process.communicate()


def free_ports(count: int) -> tuple[int, ...]:
    """Return ports of 127.0.0.1 that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for place in sockets:
            place.bind((HOST, 0))
        return tuple(place.getsockname()[1] for place in sockets)
