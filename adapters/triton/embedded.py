"""A real Triton server on this machine, for the demo, for tests and for trying things out."""

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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import psutil
import tenacity

from tuner.adapters.triton import watchdog
from tuner.adapters.triton.download import (
    Progress,
    fetch_triton,
    python_library_folder,
    require_platform,
    silent,
)
from tuner.adapters.triton.repository import assemble_backends, make_repository
from tuner.errors import AdapterError, InvalidInput

__all__ = ["EmbeddedTriton", "Ports"]

HOST = "127.0.0.1"
START_ATTEMPTS = 5
"""Another program may take a port between our finding it free and the server's opening it."""
STOP_TIMEOUT = watchdog.GRACE + 7.0


class Ports(NamedTuple):
    """Where the server listens."""

    grpc: int
    http: int
    metrics: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerOptions:
    """How the embedded server is started."""

    summaries: bool = True
    """Export latency quantiles (``--metrics-config=summary_latencies=true``)."""
    explicit: bool = True
    """Accept configuration changes (``--model-control-mode=explicit``)."""
    metrics: bool = True
    """Open the metrics port (``--allow-metrics``)."""
    complete_configurations: bool = False
    """Let Triton guess missing parts of model configurations; costs a second per reload."""

    def flags(self, models: Sequence[str]) -> list[str]:
        """Return Triton's own flags for this."""
        flags = [f"--allow-metrics={str(self.metrics).lower()}"]
        if self.explicit:
            flags += ["--model-control-mode=explicit", *[f"--load-model={model}" for model in models]]
        if self.summaries and self.metrics:
            flags.append("--metrics-config=summary_latencies=true")
        if not self.complete_configurations:
            flags.append("--disable-auto-complete-config")
        return flags


class EmbeddedTriton:
    """A Triton server that lives as long as this object is open.

    ``start`` (or ``with``) fetches the server if need be, starts it on free ports of 127.0.0.1 and waits
    until its models answer; ``stop`` ends it with its children and removes every trace. It ends, too, when
    this process dies in whatever way.

    Args:
        model: The model that ``target`` names: ``mlp`` or ``cnn``.
        models: All models to serve; only ``model`` if empty.
        options: How the server is started.
        progress: Told what takes long.
        start_timeout: How long the server may take to become ready, s.

    Raises:
        UnsupportedPlatform: The server's binary cannot run here.
        InvalidInput: A model is unknown.
    """

    def __init__(
        self,
        model: str = "mlp",
        *,
        models: Sequence[str] = (),
        options: ServerOptions | None = None,
        progress: Progress = silent,
        start_timeout: float = 60.0,
    ) -> None:
        require_platform()
        self.model = model
        self.models = tuple(models) or (model,)
        if model not in self.models:
            raise InvalidInput("embedded model", f"'{model}' is not among the models served, {self.models}")
        self.options = options or ServerOptions()
        self.ports = Ports(0, 0, 0)
        self.pid = 0
        self._progress = progress
        self._start_timeout = start_timeout
        self._folder: Path | None = None
        self._watchdog: subprocess.Popen[str] | None = None

    @property
    def target(self) -> str:
        """The URL to connect to."""
        metrics = self.ports.metrics if self.options.metrics else "off"
        return f"triton://{HOST}:{self.ports.grpc}/{self.model}?metrics={metrics}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        words = self.log_tail() if isinstance(error, AdapterError) and not self.processes() else ""
        self.stop()
        if words:
            raise AdapterError(f"{error}; the embedded Triton has ended, its last words:\n{words}") from error

    def start(self) -> None:
        """Start the server and wait until its models are ready.

        Raises:
            AdapterError: It cannot be downloaded, or does not become ready; the message has its last words.
            StorageError: The cache folder cannot be written.
        """
        self.stop()
        server = fetch_triton(self._progress)
        backends = assemble_backends(server)
        self._folder = Path(tempfile.mkdtemp(prefix="servetune-triton-"))
        try:
            make_repository(self._folder / "models", self.models, self._progress)
            self._launch_until_ready(server, backends, new_ports=True)
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        """Start again on the same ports, after ``kill`` or while running; overrides of models are lost.

        Raises:
            AdapterError: It does not become ready.
        """
        if self._folder is None:
            raise InvalidInput("embedded server", "was never started", "call start() first")
        self._end_process()
        server = fetch_triton(self._progress)
        self._launch_until_ready(server, assemble_backends(server), new_ports=False)

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

    def log_tail(self, lines: int = 12) -> str:
        """Return the last errors of the server's log, or its last lines if it has none."""
        log = self._folder / "server.log" if self._folder else None
        if log is None or not log.exists():
            return ""
        written = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in written if re.match(r"E\d{4} |error:", line)]
        return "\n".join((errors or written)[-lines:])

    def _launch_until_ready(self, server: Path, backends: Path, *, new_ports: bool) -> None:
        for attempt in range(START_ATTEMPTS):
            if new_ports:
                self.ports = _free_ports()
            self._launch(server, backends)
            try:
                self._wait_until_ready()
                return
            except AdapterError as error:
                self._end_process()
                if "in use" not in str(error).lower() or attempt == START_ATTEMPTS - 1:
                    raise

    def _launch(self, server: Path, backends: Path) -> None:
        assert self._folder is not None
        log = self._folder / "server.log"
        log.unlink(missing_ok=True)
        # Shared memory of the Python backend gets a name of our own, so that we remove ours only.
        prefix = f"servetune_{uuid.uuid4().hex[:12]}_"
        arguments = [str(os.getpid()), prefix, str(self._folder), str(log)]
        self._watchdog = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                watchdog.__file__,
                *arguments,
                *self._command(server, backends, prefix),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=_environment(server),
            start_new_session=True,
        )
        assert self._watchdog.stdout is not None
        line = self._watchdog.stdout.readline()
        if not line.strip().isdigit():
            raise AdapterError("the embedded Triton could not be started: its watchdog ended")
        self.pid = int(line)

    def _command(self, server: Path, backends: Path, prefix: str) -> list[str]:
        triton = server / "pytriton" / "tritonserver"
        addresses = [f"--{service}-address={HOST}" for service in ("grpc", "http", "metrics")]
        ports = [f"--{service}-port={port}" for service, port in self.ports._asdict().items()]
        return [
            str(triton / "bin" / "tritonserver"),
            f"--model-repository={self._folder}/models",
            f"--backend-directory={backends}",
            f"--cache-directory={triton / 'caches'}",
            f"--backend-config=python,shm-region-prefix-name={prefix}",
            "--allow-gpu-metrics=false",
            "--exit-timeout-secs=1",
            *addresses,
            *ports,
            *self.options.flags(self.models),
        ]

    def _wait_until_ready(self) -> None:
        ready = tenacity.Retrying(
            stop=tenacity.stop_after_delay(self._start_timeout),
            wait=tenacity.wait_fixed(0.05),
            retry=tenacity.retry_if_result(lambda is_ready: not is_ready),
        )
        try:
            ready(self._is_ready)
        except tenacity.RetryError as error:
            problem = f"the embedded Triton was not ready within {self._start_timeout:g} s"
            raise AdapterError(f"{problem}; its last words:\n{self.log_tail()}") from error

    def _is_ready(self) -> bool:
        if self._watchdog is None or self._watchdog.poll() is not None:
            raise AdapterError(f"the embedded Triton ended at its start; its last words:\n{self.log_tail()}")
        return self._listens() and all(self._answers(f"/v2/models/{model}/ready") for model in self.models)

    def _listens(self) -> bool:
        """Whether it is our server that listens: another program may have been quicker to take a port."""
        try:
            connections = psutil.Process(self.pid).net_connections("tcp")
        except psutil.Error:
            return False
        listening = {entry.laddr[1] for entry in connections if entry.status == psutil.CONN_LISTEN}
        return {self.ports.grpc, self.ports.http} <= listening

    def _answers(self, path: str) -> bool:
        connection = http.client.HTTPConnection(HOST, self.ports.http, timeout=2.0)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _end_process(self) -> None:
        """Have the watchdog end the server, and wait for it."""
        process, self._watchdog, self.pid = self._watchdog, None, 0
        if process is None:
            return
        try:
            with contextlib.suppress(OSError):
                process.communicate(timeout=STOP_TIMEOUT)  # closes its input: the sign to end
        except subprocess.TimeoutExpired:
            process.kill()  # the kernel then ends the server
            process.communicate()


def _free_ports() -> Ports:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in Ports._fields]
        for place in sockets:
            place.bind((HOST, 0))
        return Ports(*[place.getsockname()[1] for place in sockets])


def _environment(server: Path) -> dict[str, str]:
    libraries = [
        python_library_folder(),
        str(server / "nvidia_pytriton.libs"),
        os.environ.get("LD_LIBRARY_PATH", ""),
    ]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
        # The Python backend asks the first python3 on the path where its libraries are.
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
