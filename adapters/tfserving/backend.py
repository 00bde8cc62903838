"""One model on a running TensorFlow Serving, seen through its public protocol and its version folders."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from tuner.adapters.backend import ApplyReport, Counters, Description
from tuner.adapters.connection.endpoint import Endpoint
from tuner.adapters.connection.host import listening_processes, local_cores
from tuner.adapters.metrics.page import expected
from tuner.adapters.registry import Grids
from tuner.adapters.tfserving.batching import MAX_BATCH_SIZE
from tuner.adapters.tfserving.client import TFServingClient, VersionStatus, serving_version
from tuner.adapters.tfserving.flags import read_flags, started
from tuner.adapters.tfserving.knobs import check, knob_space
from tuner.adapters.tfserving.metrics import TFServingMetrics, metrics_page, parse_metrics
from tuner.adapters.tfserving.restart import RestartCommand, ThreadKnobs
from tuner.adapters.tfserving.statistics import Statistics, largest_request
from tuner.adapters.tfserving.target import TFServingTarget, parse_target
from tuner.adapters.tfserving.versions.folders import Versions
from tuner.adapters.tfserving.versions.knobs import VersionKnobs
from tuner.adapters.tfserving.versions.steering import ConfigFile, NewestServes, Steering
from tuner.errors import AdapterError, InvalidInput, ReadOnly, Unreachable
from tuner.knobs import ApplyCost, Configuration, KnobSpace
from tuner.profile import BatchingProfile, fit_profile

__all__ = ["TFServingBackend"]

WIRE = "tuner.adapters.tfserving.wire"
UNKNOWN_CORES = 4
"""Taken for a server on another machine."""
LARGEST_ARRAY = 8192
"""Larger batches are counted as of this size."""
NO_FOLDER = "the model's folder is not known: name it, as it is seen from here, with base_path= in the target"


class TFServingBackend:
    """One model on a TensorFlow Serving server.

    Opening it notes which version serves and with which parameters, so that ``restore`` can put back exactly
    what was found. From then on totals are counted, over restarts of the server.

    Args:
        target: ``tfserving://host:8500/model?rest=8501&base_path=/models/model``.
        grids: Grids in place of the default ones, by knob name, and of further knobs.
        timeout: Longest wait for an answer, s.
        load_timeout: Longest wait for a version to be loaded or the server to be restarted, s.
        settle: How long a change goes on to disturb, s.

    Raises:
        InvalidInput: The target or a grid cannot be used.
        UnknownModel: The server does not serve the model.
        Unreachable: The server or its REST port does not answer.
    """

    def __init__(
        self,
        target: str,
        grids: Grids | None = None,
        *,
        timeout: float = 5.0,
        load_timeout: float = 60.0,
        settle: float = 1.0,
    ) -> None:
        self._target: TFServingTarget = parse_target(target)
        self._timeout = timeout
        self._load_timeout = load_timeout
        self._settle = settle
        self._lock = threading.Lock()  # a watcher may sample while the loop applies
        self._client = TFServingClient(self._target, timeout=timeout)
        try:
            self._open(grids or {})
        except BaseException:
            self._client.close()
            raise

    def _open(self, grids: Grids) -> None:
        target = self._target
        self.serving()
        first = self._page()
        self._statistics = Statistics(first, LARGEST_ARRAY)
        self._rows = largest_request(first.rows)
        self._version_knobs = self._open_versions()
        self._thread_knobs: ThreadKnobs | None = None
        if target.restart is not None:
            command = RestartCommand(target.restart)
            self._thread_knobs = ThreadKnobs(
                command,
                flags=self._flags,
                started=lambda: started(self._processes()),
                serving=self.serving,
                timeout=self._load_timeout,
            )
        self._limit = self._version_knobs.limit if self._version_knobs is not None else 1
        self._space = knob_space(
            grids,
            versions=self._version_knobs is not None,
            restart=self._thread_knobs is not None,
            limit=self._limit,
            rows=self._rows,
            cores=local_cores(target.host) or UNKNOWN_CORES,
        )

    def _open_versions(self) -> VersionKnobs | None:
        target = self._target
        if target.base_path is None:
            return None
        steering: Steering | None = NewestServes() if not target.label else None
        if target.config is not None:
            steering = ConfigFile(target.config, target.model, target.label, self._client, self._load_timeout)
        return VersionKnobs(self, Versions(target.base_path), steering, self._load_timeout)

    @property
    def space(self) -> KnobSpace:
        """The knobs that can be turned, and their grids."""
        return self._space

    def endpoint(self) -> Endpoint:
        """Return how clients reach the model."""
        target = self._target
        options = {"label": target.label, "signature": target.signature}
        return Endpoint(
            wire=WIRE,
            address=target.address,
            model=target.model,
            options=options,
            security=target.security.options(),
        )

    def describe(self) -> Description:
        """Return who this is and what it can do."""
        serving = self.serving()
        processes = self._processes()
        reasons = self._why_read_only(read_flags(processes))
        return Description(
            target=self._target.url,
            server="tfserving",
            version=f"(version {serving} of the model)",
            model=self._target.model,
            writable=not reasons,
            quantiles=True,
            processes=processes,
            notes=(*reasons, *self._notes(bool(processes))),
        )

    def _why_read_only(self, flags: Mapping[str, str] | None) -> list[str]:
        if self._version_knobs is not None:
            return self._version_knobs.why_read_only(flags)
        return [NO_FOLDER] if self._thread_knobs is None else []

    def _notes(self, local: bool) -> list[str]:
        notes = []
        if self._page().others:
            notes.append(
                "the server has other models, too: its metrics of queueing and batches are of all of them"
            )
        if not local:
            notes.append("the server's process is not visible from here: its CPU use is not measured")
        return notes

    def serving(self) -> int:
        """Return the version that requests go to.

        Raises:
            AdapterError: None is available, or the server cannot be asked.
        """
        if self._target.label:
            return self._client.labelled(self._target.label)
        number = serving_version(self._client.versions())
        if number is None:
            raise Unreachable(f"{self._target.address} serves no version of '{self._target.model}' now")
        return number

    def versions(self) -> dict[int, VersionStatus]:
        """Return what the server says of each version."""
        return self._client.versions()

    def current(self) -> Configuration:
        """Read what runs: the parameters of the serving version, and the server's threads."""
        values: dict[str, float] = {}
        if self._version_knobs is not None:
            values |= self._version_knobs.read(self._space.names)
        if self._thread_knobs is not None:
            values |= self._thread_knobs.read()
        return Configuration({name: values[name] for name in self._space.names})

    def apply(self, configuration: Configuration) -> ApplyReport:
        """Make the server run a configuration, verified by reading back.

        Without batching (``max_batch_size`` 1) there is no timeout and no queue: such configurations
        differ in name only, and the report gives the others as 0.
        """
        check(self._space, configuration, self._limit)
        wanted = self._space.effective(configuration)
        begun = time.monotonic()
        running = self.current()
        if running == wanted:
            return self._report(running, ApplyCost.FREE, begun)
        if reasons := self._why_read_only(self._flags()):
            raise ReadOnly("; ".join(reasons))
        self._check_rows(wanted)
        cost = self._space.apply_cost(running, wanted)
        if (
            self._version_knobs is not None
            and self._version_knobs.read(self._space.names).items() - wanted.items()
        ):
            self._version_knobs.write(wanted)
        if self._thread_knobs is not None:
            self._write_threads(running, wanted)
        return self._report(self.current(), cost, begun, changed=True)

    def _write_threads(self, running: Configuration, wanted: Configuration) -> None:
        """Restart with other threads if need be; if that fails, the versions go back, too."""
        assert self._thread_knobs is not None
        try:
            self._thread_knobs.write(wanted)
        except AdapterError:
            if self._version_knobs is not None:
                self._version_knobs.write(running)
            raise

    def restore(self) -> ApplyReport:
        """Put back exactly what was found at opening: the version and the threads.

        Raises:
            AdapterError: As ``apply``.
        """
        begun = time.monotonic()
        before = self.current()
        changed = False
        for knobs in (self._version_knobs, self._thread_knobs):
            changed = (knobs is not None and knobs.restore()) or changed
        after = self.current()
        cost = max(self._space.apply_cost(before, after), ApplyCost.RELOAD if changed else ApplyCost.FREE)
        return self._report(after, cost, begun, changed=changed)

    def _report(
        self, configuration: Configuration, cost: ApplyCost, begun: float, *, changed: bool = False
    ) -> ApplyReport:
        return ApplyReport(
            configuration=configuration,
            changed=changed,
            cost=cost,
            seconds=time.monotonic() - begun,
            settle=self._settle if changed else 0.0,
            # A new version is loaded beside the old one, which serves until then: only a restart is felt.
            affected=0.0 if cost < ApplyCost.RESTART else None,
        )

    def _check_rows(self, wanted: Configuration) -> None:
        """Refuse a limit below the rows of the clients' requests: the server would refuse those."""
        limit = int(wanted.get(MAX_BATCH_SIZE, 1))
        self._rows = max(self._rows, largest_request(self._page().rows))
        if 1 < limit < self._rows and self._version_knobs is not None and not self._version_knobs.splits:
            problem = f"{limit} is below {self._rows}, the rows that requests of clients may have"
            fix = "the server would refuse those; use a larger value, or 1 for no batching"
            raise InvalidInput(f"knob {MAX_BATCH_SIZE}", problem, fix)

    def counters(self) -> Counters:
        """Read the totals: one HTTP request."""
        with self._lock:
            now = time.monotonic()
            self._statistics.add(expected(self._page))
            return self._statistics.counters(now)

    def _page(self) -> TFServingMetrics:
        return parse_metrics(metrics_page(self._target).fetch(self._timeout), self._target.model)

    def _flags(self) -> dict[str, str] | None:
        return read_flags(self._processes())

    def _processes(self) -> tuple[int, ...]:
        return listening_processes(self._target.host, self._target.port)

    def profile(self) -> BatchingProfile | None:
        """Return l(b) over everything seen since opening, or None before the first execution."""
        self.counters()
        counts, seconds = self._statistics.batches()
        return fit_profile(counts, seconds)

    def close(self) -> None:
        """Close the connection. Never changes the server. May be called twice."""
        self._client.close()
