"""Sends load to a model from a separate process, and records the end of every request."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import TracebackType
from typing import IO

import numpy as np

from tuner.adapters.connection.endpoint import Endpoint
from tuner.errors import InvalidInput, TunerError, Unreachable
from tuner.profiler.load.log import LoadLog, LoadTotals
from tuner.profiler.load.wire import RECORD, Setup
from tuner.profiler.source import ClientSample
from tuner.workload.arrivals import Arrival
from tuner.workload.notation import parse_arrival

__all__ = ["LoadGenerator"]

REPORTS = 2.0
"""How long to wait for reports of a worker before a window is taken without them, s."""
FAREWELL = 10.0
"""How long a worker that has sent may take to end after the drain, s; its last records would be lost."""


class LoadGenerator:
    """An open-loop load generator for a model's gRPC endpoint; implements ``Clients``.

    It sends from construction until `stop`. A separate process sends, so that learning and plotting never
    delay a request. That process ends with its parent, whichever way the parent ends.

    Args:
        endpoint: The model, and the protocol that reaches it.
        arrival: The arrival process, also as text (``poisson:200``).
        shapes: Shapes of inputs with open dimensions, without the batch dimension.
        seed: Of arrivals and data.
        timeout: A request without an answer this long after its intended send time is lost, s. It is not
            cancelled, and a later answer does not count.
        grace: How long `sample` waits for outstanding answers, s.
        patience: How long to wait for the server at the start, s.
        present: Returns how clients reach the model now, where that changes because replicas come and go.
            Each `sample` asks it; from then on requests go there.

    Raises:
        InvalidInput: A setting is unusable, the model unknown, its inputs cannot be made up, or are refused.
        Unreachable: The server does not answer.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        arrival: Arrival | str,
        *,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        seed: int = 0,
        timeout: float = 10.0,
        grace: float = 1.0,
        patience: float = 10.0,
        present: Callable[[], Endpoint] | None = None,
    ) -> None:
        if not timeout > 0:
            raise InvalidInput("load generator", f"{timeout=} must be positive")
        self._in_flight = 0
        self._arrival = parse_arrival(arrival) if isinstance(arrival, str) else arrival
        self.grace = grace
        self._timeout = timeout
        self._endpoint = endpoint
        self._present = present
        setup = Setup(
            endpoint=endpoint,
            arrival=str(self._arrival),
            shapes=shapes or {},
            seed=seed,
            timeout=timeout,
            patience=patience,
        )
        self._log = LoadLog()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        self._process = self._launch()
        try:
            self._greet(setup)
        except BaseException:
            self.stop(drain=0.0)
            raise
        self._reader = threading.Thread(target=self._read, name="load-generator", daemon=True)
        self._reader.start()

    def __enter__(self) -> LoadGenerator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(drain=self.grace if error is not None else None)

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    @property
    def arrival(self) -> Arrival:
        """The arrival process in force."""
        return self._arrival

    def set_rate(self, rate: float) -> None:
        """Send at another mean rate from now on, requests/s.

        Raises:
            InvalidInput: The rate is unusable, or the arrival process has a schedule of its own.
        """
        self.set_arrival(self._arrival.at_rate(rate))

    def set_arrival(self, arrival: Arrival | str) -> None:
        """Follow another arrival process from now on.

        Raises:
            InvalidInput: The text is not an arrival process.
        """
        self._arrival = parse_arrival(arrival) if isinstance(arrival, str) else arrival
        self._order({"arrival": str(self._arrival)})

    @property
    def in_flight(self) -> int:
        """Most requests without an answer; 0: however many."""
        return self._in_flight

    def set_in_flight(self, most: int) -> None:
        """Have at most this many requests without an answer from now on; 0: however many.

        Others wait here, and that counts as latency. A lost request no longer counts.
        """
        self._in_flight = most
        self._order({"in_flight": most})

    def sample(self, start: float, end: float) -> ClientSample:
        """Return the requests intended in ``[start, end)``; waits up to `grace` for outstanding answers.

        Raises:
            InvalidInput: The interval is so long ago that its requests are no longer in memory.
            TunerError: The worker has ended.
        """
        self.follow_servers()
        patience = max(end - time.monotonic(), 0.0) + REPORTS
        if not self._log.wait_reported(end, patience) and self._log.closed:
            raise self._death()
        self._log.wait_answered(start, end, self.grace)
        return self._log.sample(start, end)

    def follow_servers(self) -> None:
        """Send to where the model is now, if that has changed."""
        if self._present is None or (endpoint := self._present()) == self._endpoint:
            return
        self._order({"endpoint": asdict(endpoint)})
        self._endpoint = endpoint

    def answered(self, start: float, end: float) -> np.ndarray:
        """Return the latencies of the requests that were answered in ``[start, end)``, s.

        It does not wait for answers, as `sample` does: a later answer belongs to a later interval.
        """
        self._log.wait_reported(end, REPORTS)
        return self._log.answered(start, end)

    def totals(self) -> LoadTotals:
        """Return how all requests so far ended."""
        return self._log.totals()

    def stop(self, drain: float | None = None) -> None:
        """Stop sending, wait for outstanding answers, and end the process. May be called twice.

        Requests that are open after that are cancelled, which not every server survives.

        Args:
            drain: How long to wait, s; the timeout if None.
        """
        drain = self._timeout if drain is None else drain
        begun = hasattr(self, "_reader")
        if self._process.poll() is None:
            try:
                self._order({"stop": drain})
                self._process.wait(drain + (FAREWELL if begun else REPORTS))
            except (TunerError, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait()
        if begun:
            self._reader.join(FAREWELL)
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None and not pipe.closed:
                _close(pipe)

    def _launch(self) -> subprocess.Popen[bytes]:
        ours = os.pathsep.join(map(os.path.abspath, sys.path))  # what we can import, the worker can
        return subprocess.Popen(
            # -P: a file in the folder where the command runs is no module, as with `tuner` itself
            [sys.executable, "-P", "-m", "tuner.profiler.load.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            process_group=0,  # Ctrl-C is for the parent, which then stops the worker in order
            env={**os.environ, "GRPC_VERBOSITY": "NONE", "PYTHONPATH": ours},
        )

    def _greet(self, setup: Setup) -> None:
        """Send the setup and wait until the worker is ready."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(setup.to_line())
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise self._death()
        answer = json.loads(line)
        message = answer.get("message", "")
        address, model = setup.endpoint.address, setup.endpoint.model
        if answer.get("error") == "unreachable":
            raise Unreachable(f"{address}: {message}; is the server running, and is this its gRPC port?")
        if answer.get("error") == "unknown_model":
            raise InvalidInput("model", f"the server at {address} does not serve '{model}'", message)
        if answer.get("error") == "refused":
            problem = f"the server refuses requests like ours: {message}"
            raise InvalidInput("--rate", problem, "leave it out: then the model's own traffic is watched")
        if answer.get("error"):
            raise InvalidInput("load generator", message)

    def _order(self, command: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
        except (OSError, ValueError):
            raise self._death() from None

    def _read(self) -> None:
        """Take in records until the worker closes its end."""
        assert self._process.stdout is not None
        rest = b""
        while chunk := self._process.stdout.read(1 << 16):
            rest += chunk
            whole = len(rest) - len(rest) % RECORD.itemsize
            self._log.add(np.frombuffer(rest[:whole], RECORD))
            rest = rest[whole:]
        self._log.close()

    def _death(self) -> TunerError:
        """Return the error that says why the worker ended."""
        said = ""
        if not self._errors.closed:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().rpartition("\n")[2]
        return TunerError(f"the load generator has ended ({said or 'it was stopped'})")


def _close(pipe: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # the other end may be gone already
        pipe.close()
