"""One model on a running Triton server, seen through its public protocol: nothing is installed there."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import partial
from typing import NoReturn

import numpy as np

from tuner.adapters.backend import Counters
from tuner.adapters.live.backend import Capabilities, Change, LiveBackend
from tuner.adapters.live.knobs import BATCH_GRID, KnobKind
from tuner.adapters.live.meanwhile import read_meanwhile
from tuner.adapters.metrics.page import expected
from tuner.adapters.metrics.totals import MonotonicTotals, Reading
from tuner.adapters.triton import statistics as stats
from tuner.adapters.triton.batching import own_rules
from tuner.adapters.triton.change import ADDED, AddsBatching, ModelControl, change
from tuner.adapters.triton.client import NEWER, TritonClient
from tuner.adapters.triton.configuration import (
    MAX_BATCH_SIZE,
    ModelConfig,
    differ_in_instances_only,
    in_place_unless_marked,
    is_ensemble,
    is_stateful,
    model_limit,
    normal_form,
    read_configuration,
    rewrite,
    toggle_reload_mark,
    with_knobs_of,
)
from tuner.adapters.triton.instance_groups import on_gpu
from tuner.adapters.triton.knobs import (
    batch_sizes,
    below_ensemble,
    forms_batches,
    kind_of,
    knob_space,
    left_alone,
)
from tuner.adapters.triton.metrics import QUANTILE_MEMORY, TritonMetrics, metrics_page, parse_metrics
from tuner.adapters.triton.neighbours import Neighbours
from tuner.adapters.triton.repository_file import RepositoryFile
from tuner.adapters.triton.target import TritonTarget, parse_target
from tuner.errors import AdapterError, InvalidInput, ReadOnly, Refused, TunerError
from tuner.knobs import ApplyCost, Configuration, Grids, KnobSpace, Role
from tuner.measurement import QUANTILES
from tuner.printable import one_line

__all__ = ["TritonBackend"]

log = logging.getLogger(__name__)

LARGEST_ARRAY = 65536
"""Batch sizes above are not counted."""
NO_METRICS = (
    "metrics are off: latency quantiles are unknown, only means; start Triton with "
    "--allow-metrics=true and name its port with 'metrics=' in the target"
)
NO_QUANTILES = (
    "the server exports only mean latencies; for quantiles start Triton with "
    "--metrics-config=summary_latencies=true"
)
LACKS = (
    "the server's summary_quantiles lack %s: start Triton with "
    "--metrics-config=summary_quantiles=0.5:0.05,0.95:0.001,0.99:0.001 and your own, "
    "or give --rate, unless the model is decoupled or stateful"
)
CACHED = (
    "Triton exports only mean latencies of a model with a response cache; for quantiles give --rate, "
    "or name a gateway's with --sli-prometheus"
)
ROWS = (
    "clients' requests may have %d rows, as far as its batches show it: no lower batch limit is set, "
    "except 1 (no batching)"
)
WITHIN = (
    "the ensemble %s has the model in it: no batch limit below its max_batch_size of %d is tried, "
    "except 1 (no batching), because Triton would no longer serve it"
)
RULES = (
    "without batching Triton would not heed %s of the model's dynamic_batching: "
    "a batch of 1 is tried only if you name it (--knob max_batch_size=1,2,4)"
)
DEPLOYED_ANEW = (
    "the model has another max_batch_size of its own than at the beginning: it was deployed anew, "
    "and what ran before is not put back over that"
)
OTHER_LIMIT = "the model was deployed anew with a max_batch_size of %d, which was %d"
WITHOUT_KNOBS = "the model was deployed anew without a knob that it had"
CAME = "model '%s': the change of its knobs has put version %s into service, which was copied but not loaded"
SEQUENCES_ENDED = (
    "model '%s' was reloaded by the change of its instances, which ended the sequences that were open: "
    "most likely something was written into its version folder since it was loaded (as a Python model's "
    "__pycache__), or this Triton does not change them in place"
)
LOST = "with this configuration of '%s' Triton no longer serves %s"
KNOBS_ONLY = "model '%s' was deployed anew: its knobs are put back, and the rest of it stays as it is now"


class TritonBackend(LiveBackend[TritonTarget, TritonClient]):
    """One model on a Triton server, such as ``triton://host:8001/model?metrics=8002``.

    A change sends the whole model configuration, so the one that was found at opening is kept as a whole.
    """

    wire = "tuner.adapters.triton.wire"
    usual_settle = 1.5  # the old instances live on for a while

    def _parse(self, target: str) -> TritonTarget:
        return parse_target(target)

    def _connect(self) -> TritonClient:
        return TritonClient(self._target, timeout=self._timeout)

    def _open(self, grids: Grids) -> KnobSpace:
        self._client.identity()
        self.original: ModelConfig = self._client.config()
        self._control: ModelControl = self._client
        if self._target.repository is not None:
            self._control = RepositoryFile(
                self._client,
                self._target.repository,
                self._target.model,
                load_timeout=self._load_timeout,
            )
        asked = self._client.neighbours, self._client.config_of
        by_file = self._control is not self._client
        self._neighbours = Neighbours(self._target.model, *asked, by_file=by_file)
        first = self._client.statistics()
        self._statistics = MonotonicTotals(first)
        self._lifetime_compute = sum(reading.get(stats.COMPUTE, 0) for reading in first.values()) / 1e9
        self._failures = MonotonicTotals(stats.failure_readings(self._metrics().failures))
        self._limit = max(1, model_limit(self.original))
        self._lowest = LARGEST_ARRAY  # of the batch limits that served the clients, here or at other replicas
        self._sure_rows = 1  # most rows that a request surely had
        self._adds_batching = False  # whether the server was seen to do so
        self._rows = self._rows_of(first, read_configuration(self.original, [MAX_BATCH_SIZE]))
        self._largest = min(max(self._limit, int(max(BATCH_GRID))), LARGEST_ARRAY)
        self._least, self._ensemble = 0, ""  # the largest limit of an ensemble with this model, and its name
        if forms_batches(self.original):
            self._least, self._ensemble = self._neighbours.largest()
        if self._least > 1 and MAX_BATCH_SIZE not in grids:
            grids = {**grids, MAX_BATCH_SIZE: batch_sizes(self.original, max(self._rows, self._least))}
        return knob_space(self.original, grids, cores=self._cores(), rows=self._rows)

    def _kind_of(self, knob: str) -> KnobKind:
        return kind_of(knob, self._limit)

    def _endpoint_options(self) -> dict[str, str]:
        return {"version": self._target.version}

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
    def unknown_fields(self) -> str:
        """That a change would lose fields of the model; empty if not. An ensemble itself is never changed."""
        return "" if self._client.reads_all or is_ensemble(self.original) else NEWER

    @property
    def lifetime_compute(self) -> float:
        """Time in execution of all requests that the server had counted before this was opened, s."""
        return self._lifetime_compute

    def _inspect(self, processes: tuple[int, ...]) -> Capabilities:  # noqa: ARG002
        server, version = self._client.identity()
        # A server in poll mode takes no changes over the network, but from its files.
        why = self._client.why_read_only() if self._control is self._client else ""
        exported = self._metrics().exported
        lacks = tuple(name for name, share in QUANTILES.items() if exported and share not in exported)
        limited = NO_QUANTILES
        if self._target.metrics_port is None:
            limited = NO_METRICS
        elif self.original.get("response_cache", {}).get("enable", False):
            limited = CACHED
        elif exported:
            limited = LACKS % " and ".join(lacks)
        return Capabilities(
            server=server,
            version=version,
            quantiles=bool(exported),
            lacks=lacks,
            quantile_memory=QUANTILE_MEMORY if exported else 0.0,
            read_only=[each for each in (why, self.unknown_fields) if each],
            on_gpu=on_gpu(self.original),
            notes=[*self._bounded(), *([limited] if lacks or not exported else [])],
            without_knobs=left_alone(self.original, self._space.names),
        )

    def _bounded(self) -> list[str]:
        """Return which batch limits are not set, and why."""
        rows = [ROWS % self._rows] if self._rows > 1 and MAX_BATCH_SIZE in self._space.names else []
        within = [WITHIN % (one_line(self._ensemble), self._least)] if self._least > 1 else []
        batch, rules = self._space.with_role(Role.BATCH), ", ".join(own_rules(self.original))
        unheeded = [RULES % rules] if rules and batch is not None and 1 not in batch.grid else []
        return [*rows, *within, *unheeded, *([ADDED] if self._adds_batching else [])]

    def _check_writable(self) -> None:
        if self.unknown_fields:
            raise ReadOnly(self.unknown_fields)

    def _checked(self, configuration: Configuration) -> tuple[Configuration, Configuration]:
        running, wanted = super()._checked(configuration)
        if running.get(MAX_BATCH_SIZE) == 1:  # it has been started in another way since
            self._adds_batching = False
        elif self._adds_batching and wanted.get(MAX_BATCH_SIZE) == 1:
            raise InvalidInput(f"knob {MAX_BATCH_SIZE}", "1 cannot be set", ADDED)
        if running != wanted:
            self._check_ensembles(wanted.get(MAX_BATCH_SIZE, 1))
        return running, wanted

    def _check_ensembles(self, limit: float) -> None:
        """Refuse a batch limit below that of an ensemble with the model, as such are deployed now."""
        if limit > 1 and limit < (least := self._neighbours.largest()[0]):
            raise below_ensemble(MAX_BATCH_SIZE, limit, least)

    def current(self) -> Configuration:
        """Read from the server what it runs."""
        config = self._client.config()
        self._limit = max(1, model_limit(config))  # another one if the model was deployed anew
        try:
            return read_configuration(config, self._space.names)
        except InvalidInput as error:  # it had them when this was opened
            raise AdapterError(f"{WITHOUT_KNOBS}: {error}") from error

    @property
    def deployed_anew(self) -> str:
        """That the model has another batch limit of its own than when it was opened; empty if it has not."""
        first = max(1, model_limit(self.original))
        return OTHER_LIMIT % (self._limit, first) if self._limit != first else ""

    def batch_limit(self) -> int:
        """Return the model's own ``max_batch_size``, as it is deployed now.

        Raises:
            AdapterError: The server cannot be asked.
        """
        return max(1, model_limit(self._client.config()))

    def _largest_request(self, running: Configuration) -> int:
        return self._rows_of(self._client.statistics(), running)

    def hear_of(self, configurations: Collection[Configuration]) -> None:
        """Learn what other servers run that the same clients send to.

        Their requests have no more rows than the lowest of these limits, unless there surely were larger ones
        here: whole batches of this server may have looked like one request.
        """
        limits = [int(configuration.get(MAX_BATCH_SIZE, 1)) for configuration in configurations]
        self._lowest = min([self._lowest, *(limit for limit in limits if limit > 1)])
        self._rows = max(self._sure_rows, min(self._rows, self._lowest))

    def _rows_of(self, readings: Mapping[str, Reading], running: Configuration) -> int:
        """Return how many rows the largest request may have, by the statistics of what runs."""
        limit = int(running[MAX_BATCH_SIZE])
        if limit > 1:
            self._lowest = min(self._lowest, limit)
        largest = partial(stats.largest_request, readings, batching=limit > 1)
        self._sure_rows = max(self._sure_rows, largest(ran=1))  # takes no whole batch for one request
        return largest(ran=self._lowest)

    def _change(self, running: Configuration, wanted: Configuration) -> Change:  # noqa: ARG002
        before = self._client.config()
        after = rewrite(before, wanted)
        if in_place_unless_marked(before, after):
            after = toggle_reload_mark(after)
        return self._reconfigure(before, after, wanted)

    def _put_back(self) -> Change | None:
        if isinstance(self._control, RepositoryFile):
            self._control.put_back()
        before = self._client.config()
        if before == self.original:
            return None
        if model_limit(before) != model_limit(self.original):
            raise Refused(DEPLOYED_ANEW)
        after = with_knobs_of(self.original, before, self._space.names)
        if normal_form(after) == normal_form(before):
            return None
        if after != self.original:
            log.warning(KNOBS_ONLY, self._target.model)
        found = read_configuration(self.original, self._space.names)
        if in_place_unless_marked(before, after):
            marked = toggle_reload_mark(after)
            self._reconfigure(before, marked, found)
            before = marked
        return self._reconfigure(before, after, found)

    def _reconfigure(self, before: ModelConfig, after: ModelConfig, configuration: Configuration) -> Change:
        """Change the server, which then runs ``configuration``; its statistics show what that cost.

        Where that takes an ensemble with this model out of service, it is taken back.
        """
        self._check_writable()
        served = self._sample()  # what was counted so far is lost with a reload
        restarts = self._statistics.restarts
        ensembles = self._neighbours.ensembles()
        with read_meanwhile(self.sample):  # the old instances serve until the new ones are loaded
            try:
                change(self._control, before, after, self._load_timeout)
            except AddsBatching:
                self._adds_batching = True
                raise
            affected = self._waiting()
            if lost := self._neighbours.lost(ensembles):
                self._take_back(after, before, LOST % (self._target.model, ", ".join(map(one_line, lost))))
        if came := self._sample() - served:
            log.warning(CAME, self._target.model, ", ".join(sorted(came)))
        reloaded = self._statistics.restarts > restarts
        if reloaded and is_stateful(after) and differ_in_instances_only(before, after):
            log.warning(SEQUENCES_ENDED, self._target.model)
        return Change(
            configuration=configuration,
            cost=ApplyCost.RELOAD if reloaded else ApplyCost.IN_PLACE,
            affected=affected,
        )

    def _take_back(self, after: ModelConfig, before: ModelConfig, why: str) -> NoReturn:
        """Go back to what ran before a change that came about, and raise what is wrong with it.

        Raises:
            Refused: What ran before serves again.
            AdapterError: It does not, or somebody else has loaded another configuration meanwhile.
        """
        try:
            change(self._control, after, before, self._load_timeout)
        except AdapterError as error:
            raise AdapterError(f"{why}; the old configuration could not be put back: {error}") from error
        raise Refused(f"{why}; the old configuration was put back")

    def _waiting(self) -> float:
        """Return how many requests wait just after a change; until then the old instances served.

        Without metrics nobody knows, and it is few: those that come while the new instances take over.
        """
        try:
            return self._metrics().pending or 0.0
        except TunerError:  # the change came about all the same
            return 0.0

    def _count(self, now: float) -> Counters:
        """Read the totals: one gRPC call and, with metrics, one HTTP request."""
        self._statistics.add(self._client.statistics())
        page = expected(self._metrics)
        if page.failures:
            self._failures.add(stats.failure_readings(page.failures))
        totals = self._statistics.sums()
        counts, seconds = stats.batch_arrays(totals, self._largest)
        # Both count the failures in the backend; only the metrics know requests rejected before.
        by_reason = self._failures.sums()
        failures = max(totals[stats.FAILURES], by_reason[stats.FAILURES])
        return Counters(
            time=now,
            requests=totals[stats.REQUESTS],
            failures=failures,
            beyond_servers=by_reason[stats.BEYOND],
            latency=totals[stats.LATENCY] / 1e9,
            queue=totals[stats.QUEUE] / 1e9,
            compute=totals[stats.COMPUTE] / 1e9,
            inferences=totals[stats.INFERENCES],
            batch_counts=counts,
            batch_seconds=seconds,
            pending=page.pending,
            quantiles=page.quantiles,
            restarts=self._statistics.restarts,
            gpus=page.gpus,
        )

    def sample(self) -> None:
        """Read the statistics, which a reload would begin at 0 again.

        Raises:
            AdapterError: The server cannot be asked.
        """
        self._sample()

    def _sample(self) -> set[str]:
        """Read the statistics; return the versions that serve."""
        with self._lock:
            readings = self._client.statistics()
            self._statistics.add(readings)
            return set(readings)

    def _metrics(self) -> TritonMetrics:
        target = self._target
        if target.metrics_port is None:
            return TritonMetrics()
        text = metrics_page(target.host, target.metrics_port, target.security).fetch(self._timeout)
        version = "" if is_ensemble(self.original) else target.version  # Triton calls each ensemble's 1 there
        return parse_metrics(text, target.model, version, on_gpu=bool(on_gpu(self.original)))

    def _batches(self) -> tuple[np.ndarray, np.ndarray]:
        self.sample()
        return stats.batch_arrays(self._statistics.sums(), self._largest)
