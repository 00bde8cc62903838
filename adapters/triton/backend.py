"""One model on a running Triton server, seen through its public protocol: nothing is installed there."""

from __future__ import annotations

import threading
import time

from tuner.adapters.backend import ApplyReport, Counters, Description
from tuner.adapters.connection.endpoint import Endpoint
from tuner.adapters.connection.host import listening_processes, local_cores
from tuner.adapters.metrics.page import expected
from tuner.adapters.metrics.totals import MonotonicTotals
from tuner.adapters.registry import Grids
from tuner.adapters.triton import statistics as stats
from tuner.adapters.triton.change import ModelControl, change
from tuner.adapters.triton.client import READ_ONLY, TritonClient
from tuner.adapters.triton.configuration import (
    MAX_BATCH_SIZE,
    ModelConfig,
    differ_in_instances_only,
    is_batching,
    model_limit,
    read_configuration,
    rewrite,
    toggle_reload_mark,
)
from tuner.adapters.triton.knobs import BATCH_GRID, check, knob_space
from tuner.adapters.triton.metrics import QUANTILE_MEMORY, TritonMetrics, metrics_page, parse_metrics
from tuner.adapters.triton.repository_file import RepositoryFile
from tuner.adapters.triton.target import TritonTarget, parse_target
from tuner.errors import InvalidInput, TunerError
from tuner.knobs import ApplyCost, Configuration, KnobSpace
from tuner.profile import BatchingProfile, fit_profile

__all__ = ["TritonBackend"]

WIRE = "tuner.adapters.triton.wire"
UNKNOWN_CORES = 4
"""Taken for a server on another machine."""
LARGEST_ARRAY = 65536
"""Batch sizes above are not counted."""


class TritonBackend:
    """One model on a Triton server.

    Opening it reads the model's whole configuration and remembers it, so that ``restore`` can put back
    exactly what was found. From then on totals are counted, over reloads and restarts of the server.

    Args:
        target: ``triton://host:8001/model?metrics=8002``.
        grids: Grids in place of the default ones, by knob name, and of further ``parameters.KEY``.
        timeout: Longest wait for an answer, s.
        load_timeout: Longest wait for a changed model to be loaded, s.
        settle: How long the old instances live on after a change, s.

    Raises:
        InvalidInput: The target or a grid cannot be used.
        UnknownModel: The server does not serve the model.
        Unreachable: The server or its metrics port does not answer.
    """

    def __init__(
        self,
        target: str,
        grids: Grids | None = None,
        *,
        timeout: float = 5.0,
        load_timeout: float = 60.0,
        settle: float = 1.5,
    ) -> None:
        self._target: TritonTarget = parse_target(target)
        self._timeout = timeout
        self._load_timeout = load_timeout
        self._settle = settle
        self._lock = threading.Lock()  # a watcher may sample while the loop applies
        self._client = TritonClient(self._target, timeout=timeout)
        try:
            self._open(grids or {})
        except BaseException:
            self._client.close()
            raise

    def _open(self, grids: Grids) -> None:
        self._server = self._client.identity()
        self.original: ModelConfig = self._client.config()
        self._control: ModelControl = self._client
        if self._target.repository is not None:
            self._control = RepositoryFile(self._client, self._target.repository, self._target.model)
        first = self._client.statistics()
        self._statistics = MonotonicTotals(first)
        self._lifetime_compute = sum(reading.get(stats.COMPUTE, 0) for reading in first.values()) / 1e9
        self._first_failures = self._metrics().failures
        self._failures = MonotonicTotals({"": {stats.FAILURES: self._first_failures or 0}})
        self._limit = max(1, model_limit(self.original))
        self._rows = stats.largest_request(first, batching=is_batching(self.original))
        cores = local_cores(self._target.host) or UNKNOWN_CORES
        self._space = knob_space(self.original, grids, cores=cores, rows=self._rows)
        self._largest = min(max(self._limit, int(max(BATCH_GRID))), LARGEST_ARRAY)

    @property
    def space(self) -> KnobSpace:
        """The knobs that the model has, and their grids."""
        return self._space

    def check(self, configuration: Configuration) -> None:
        """Check what is to be applied without asking the server.

        Raises:
            InvalidInput: A knob is unknown or missing, or has an unusable value.
        """
        check(self._space, configuration, self._limit)

    def ready(self) -> bool:
        """Whether the model answers requests.

        Raises:
            AdapterError: The server cannot be asked.
        """
        return self._client.ready()

    def config_of(self, model: str) -> ModelConfig:
        """Return the whole configuration of another model of the server.

        Raises:
            AdapterError: The server cannot be asked, or does not serve it.
        """
        return self._client.config_of(model)

    @property
    def lifetime_compute(self) -> float:
        """Time in execution of all requests that the server had counted before this was opened, s."""
        return self._lifetime_compute

    def endpoint(self) -> Endpoint:
        """Return how clients reach the model."""
        options = {"version": self._target.version}
        address = self._target.address
        security = self._target.security.options()
        return Endpoint(
            wire=WIRE, address=address, model=self._target.model, options=options, security=security
        )

    def describe(self) -> Description:
        """Return who this is and what it can do."""
        self._server = self._client.identity()
        writable = self._control is not self._client or self._client.writable()
        summaries = self._metrics().summaries
        processes = listening_processes(self._target.host, self._target.port)
        return Description(
            target=self._target.url,
            server=self._server[0],
            version=self._server[1],
            model=self._target.model,
            writable=writable,
            quantiles=summaries,
            quantile_memory=QUANTILE_MEMORY if summaries else 0.0,
            processes=processes,
            notes=tuple(self._notes(writable, summaries, bool(processes))),
        )

    def _notes(self, writable: bool, summaries: bool, local: bool) -> list[str]:
        notes = []
        if not writable:
            notes.append(READ_ONLY)
        if self._target.metrics_port is None:
            notes.append("metrics are off: latency quantiles are unknown, only means; start Triton with "
                         "--allow-metrics=true and name its port with 'metrics=' in the target")  # fmt: skip
        elif not summaries:
            notes.append("the server exports only mean latencies; for quantiles start Triton with "
                         "--metrics-config=summary_latencies=true")  # fmt: skip
        if not local:
            notes.append("the server's process is not visible from here: its CPU use is not measured")
        return notes

    def current(self) -> Configuration:
        """Read from the server what it runs."""
        return read_configuration(self._client.config(), self._space.names)

    def apply(self, configuration: Configuration) -> ApplyReport:
        """Make the server run a configuration, verified by reading back.

        Without batching (``max_batch_size`` 1) there is no delay: such configurations differ in name only,
        and the report gives the delay as 0.
        """
        self.check(configuration)
        wanted = self._space.effective(configuration)
        begun = time.monotonic()
        before = self._client.config()
        running = read_configuration(before, self._space.names)
        cost = self._space.apply_cost(running, wanted)
        if running == wanted:
            return self._report(running, ApplyCost.FREE, begun)
        self._check_rows(before, wanted)
        after = rewrite(before, wanted, self.original)
        if differ_in_instances_only(before, after):
            after = toggle_reload_mark(after)
        paid = self._change(before, after)
        return self._report(wanted, max(cost, paid), begun, changed=True, affected=self._waiting())

    def restore(self) -> ApplyReport:
        """Put back exactly the configuration that was found at opening.

        Raises:
            AdapterError: As ``apply``.
        """
        begun = time.monotonic()
        before = self._client.config()
        original = read_configuration(self.original, self._space.names)
        if before == self.original:
            return self._report(original, ApplyCost.FREE, begun)
        cost = self._space.apply_cost(read_configuration(before, self._space.names), original)
        if differ_in_instances_only(before, self.original):
            marked = toggle_reload_mark(self.original)
            self._change(before, marked)
            before = marked
        paid = self._change(before, self.original)
        return self._report(original, max(cost, paid), begun, changed=True, affected=self._waiting())

    def _waiting(self) -> float:
        """Return how many requests wait just after a change; until then the old instances served.

        Without metrics nobody knows, and it is few: those that come while the new instances take over.
        """
        try:
            return self._metrics().pending or 0.0
        except TunerError:  # the change came about all the same
            return 0.0

    def _report(
        self,
        configuration: Configuration,
        cost: ApplyCost,
        begun: float,
        *,
        changed: bool = False,
        affected: float | None = None,
    ) -> ApplyReport:
        return ApplyReport(
            configuration=configuration,
            changed=changed,
            cost=cost,
            seconds=time.monotonic() - begun,
            settle=self._settle if changed else 0.0,
            affected=affected,
        )

    def _check_rows(self, before: ModelConfig, wanted: Configuration) -> None:
        """Refuse a limit below the rows of the clients' requests: the server would refuse those."""
        limit = int(wanted.get(MAX_BATCH_SIZE, 1))
        seen = stats.largest_request(self._client.statistics(), batching=is_batching(before))
        self._rows = max(self._rows, seen)
        if 1 < limit < self._rows:
            problem = f"{limit} is below {self._rows}, the rows of requests that clients send"
            fix = "the server would refuse those; use a larger value, or 1 for no batching"
            raise InvalidInput(f"knob {MAX_BATCH_SIZE}", problem, fix)

    def _change(self, before: ModelConfig, after: ModelConfig) -> ApplyCost:
        """Change the server and return what it cost, as its statistics show it."""
        self._sample()  # what was counted so far is lost with a reload
        restarts = self._statistics.restarts
        change(self._control, before, after, self._load_timeout)
        self._sample()
        return ApplyCost.RELOAD if self._statistics.restarts > restarts else ApplyCost.IN_PLACE

    def counters(self) -> Counters:
        """Read the totals: one gRPC call and, with metrics, one HTTP request."""
        with self._lock:
            now = self._sample_locked()
            page = expected(self._metrics)
            if page.failures is not None:
                self._failures.add({"": {stats.FAILURES: page.failures}})
            return self._assemble(now, page)

    def _sample(self) -> None:
        with self._lock:
            self._sample_locked()

    def _sample_locked(self) -> float:
        now = time.monotonic()
        self._statistics.add(self._client.statistics())
        return now

    def _assemble(self, now: float, page: TritonMetrics) -> Counters:
        totals = self._statistics.sums()
        counts, seconds = stats.batch_arrays(totals, self._largest)
        # Both count the failures in the backend; only the metrics know requests rejected before.
        failures = max(totals[stats.FAILURES], self._failures.sums()[stats.FAILURES])
        return Counters(
            time=now,
            requests=totals[stats.REQUESTS],
            failures=failures,
            latency=totals[stats.LATENCY] / 1e9,
            queue=totals[stats.QUEUE] / 1e9,
            compute=totals[stats.COMPUTE] / 1e9,
            inferences=totals[stats.INFERENCES],
            batch_counts=counts,
            batch_seconds=seconds,
            pending=page.pending,
            quantiles=page.quantiles,
            restarts=self._statistics.restarts,
        )

    def _metrics(self) -> TritonMetrics:
        target = self._target
        if target.metrics_port is None:
            return TritonMetrics()
        text = metrics_page(target.host, target.metrics_port, target.security).fetch(self._timeout)
        return parse_metrics(text, self._target.model, self._target.version)

    def profile(self) -> BatchingProfile | None:
        """Return l(b) over everything seen since opening, or None before the first execution."""
        self._sample()
        counts, seconds = stats.batch_arrays(self._statistics.sums(), self._largest)
        return fit_profile(counts, seconds)

    def close(self) -> None:
        """Close the connection. Never changes the server. May be called twice."""
        self._client.close()
