"""One model on a running TensorFlow Serving, seen through its public protocol and its version folders."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from tuner.adapters.backend import Counters
from tuner.adapters.live.backend import Capabilities, Change, LiveBackend
from tuner.adapters.live.knobs import KnobKind
from tuner.adapters.metrics.page import expected
from tuner.adapters.rollback import IN_DOUBT
from tuner.adapters.tfserving.batching import MAX_BATCH_SIZE, VERSION_KNOBS
from tuner.adapters.tfserving.client import TFServingClient, VersionStatus, serving_version
from tuner.adapters.tfserving.flags import first_seen, notes_on_unseen, read_flags
from tuner.adapters.tfserving.knobs import kind_of, knob_space
from tuner.adapters.tfserving.metrics import TFServingMetrics, metrics_page, parse_metrics
from tuner.adapters.tfserving.restart import ThreadKnobs
from tuner.adapters.tfserving.restart_command import RestartCommand
from tuner.adapters.tfserving.statistics import Statistics, largest_request
from tuner.adapters.tfserving.target import TFServingTarget, parse_target
from tuner.adapters.tfserving.versions.config_file import ConfigFile
from tuner.adapters.tfserving.versions.folders import Versions
from tuner.adapters.tfserving.versions.knobs import VersionKnobs
from tuner.adapters.tfserving.versions.steering import Steering
from tuner.errors import AdapterError, ReadOnly, Unreachable
from tuner.knobs import ApplyCost, Configuration, Grids, KnobSpace

__all__ = ["TFServingBackend"]

LARGEST_ARRAY = 8192
"""Larger batches are counted as of this size."""
NO_FOLDER = "the model's folder is not known: name it, as it is seen from here, with base_path= in the target"
OTHER_MODELS = "the server has other models, too: its metrics of queueing and batches are of all of them"


class TFServingBackend(LiveBackend[TFServingTarget, TFServingClient]):
    """One model on TensorFlow Serving: ``tfserving://host:8500/model?rest=8501&base_path=/models/model``.

    What it runs is two things: the batching parameters of the version that serves, changed by new version
    folders, and the threads of the server, changed by a restart that the operator declares. Either can be
    missing.
    """

    wire = "tuner.adapters.tfserving.wire"
    usual_settle = 1.0

    def _parse(self, target: str) -> TFServingTarget:
        return parse_target(target)

    def _connect(self) -> TFServingClient:
        return TFServingClient(self._target, timeout=self._timeout)

    def _open(self, grids: Grids) -> KnobSpace:
        self.serving()
        first = self._page()
        self._statistics = Statistics(first, LARGEST_ARRAY)
        self._limit = 1
        self._lowest = math.inf  # of the batch limits that served the clients
        self._version_knobs = self._open_versions()
        self._thread_knobs = self._open_threads()
        running = self._running(VERSION_KNOBS)
        self._rows = self._rows_of(first, running)
        return knob_space(
            grids,
            running,
            versions=self._version_knobs is not None,
            restart=self._thread_knobs is not None,
            limit=self._limit,
            rows=self._rows,
            cores=self._cores(),
        )

    def _open_versions(self) -> VersionKnobs | None:
        target = self._target
        if target.base_path is None:
            return None
        steering: Steering | None = Steering() if not target.label else None
        if target.config is not None:
            steering = ConfigFile(target.config, target.model, target.label, self._client, self._load_timeout)
        return VersionKnobs(self, Versions(target.base_path), steering, self._load_timeout)

    def _open_threads(self) -> ThreadKnobs | None:
        if self._target.restart is None:
            return None
        return ThreadKnobs(
            RestartCommand(self._target.restart),
            flags=self._flags,
            process=lambda: first_seen(self._processes()),
            serving=self.serving,
            timeout=self._load_timeout,
        )

    def _kind_of(self, knob: str) -> KnobKind:
        return kind_of(knob, self._limit)

    def _endpoint_options(self) -> dict[str, str]:
        return {"label": self._target.label, "signature": self._target.signature}

    def _inspect(self, processes: tuple[int, ...]) -> Capabilities:
        serving, flags = self.serving(), read_flags(processes)
        return Capabilities(
            server="tfserving",
            version=f"(version {serving} of the model)",
            quantiles=True,
            counts_by_process=True,
            read_only=self._why_read_only(flags),
            notes=[*self._unchecked(flags), *([OTHER_MODELS] if expected(self._page).others else [])],
        )

    def _unchecked(self, flags: Mapping[str, str] | None) -> list[str]:
        """Return what was taken for granted of a server that can be changed."""
        changes = self._version_knobs is not None and not self._why_read_only(flags)
        return notes_on_unseen(flags) if changes else []

    def _why_read_only(self, flags: Mapping[str, str] | None) -> list[str]:
        if self._version_knobs is not None:
            return self._version_knobs.why_read_only(flags)
        return [NO_FOLDER] if self._thread_knobs is None else []

    def _check_writable(self) -> None:
        if reasons := self._why_read_only(self._flags()):
            raise ReadOnly("; ".join(reasons))

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
        values = self._running(self._space.names)
        return Configuration({name: values[name] for name in self._space.names})

    def _running(self, names: Iterable[str]) -> dict[str, float]:
        """Read the named parameters of the serving version, and the server's threads."""
        values: dict[str, float] = {}
        if self._version_knobs is not None:
            values |= self._version_knobs.read(names)
            self._limit, self._splits_requests = self._version_knobs.limit, self._version_knobs.splits
        if self._thread_knobs is not None:
            values |= self._thread_knobs.read()
        return values

    def _largest_request(self, running: Configuration) -> int:
        return self._rows_of(expected(self._page), running)

    def _rows_of(self, page: TFServingMetrics, running: Mapping[str, float]) -> int:
        """Return how many rows the largest request may have, by the server's page and by what runs.

        1 where it is split into batches: no limit is too low for it.
        """
        if self._splits_requests:
            return 1
        limit = running.get(MAX_BATCH_SIZE, 1.0)
        if limit > 1:
            self._lowest = min(self._lowest, limit)
        return largest_request(page.rows, self._lowest, alone=not page.others)

    def _change(self, running: Configuration, wanted: Configuration) -> Change:
        versions, written = self._version_knobs, False
        if versions is not None and versions.read(self._space.names).items() - wanted.items():
            versions.write(wanted)
            written = True
        if self._thread_knobs is not None:
            try:
                self._thread_knobs.write(wanted)
            except AdapterError as error:
                if written:
                    self._go_back(running, error)
                raise
        return self._changed(running)

    def _go_back(self, running: Configuration, why: AdapterError) -> None:
        """Have a version serve with the parameters of before, because the threads could not be changed."""
        assert self._version_knobs is not None
        try:
            self._version_knobs.write(running)
        except AdapterError as error:
            kind = type(why) if isinstance(why, IN_DOUBT) else AdapterError
            raise kind(f"{why}; going back to the parameters of before failed, too: {error}") from error

    def _put_back(self) -> Change | None:
        running = self.current()
        changed = [
            knobs.restore() for knobs in (self._version_knobs, self._thread_knobs) if knobs is not None
        ]
        return self._changed(running) if any(changed) else None

    def _changed(self, before: Configuration) -> Change:
        now = self.current()
        restarted = self._space.apply_cost(before, now) is ApplyCost.RESTART
        return Change(
            configuration=now,
            cost=ApplyCost.RELOAD,
            # A new version is loaded beside the old one, which serves until then: only a restart is felt.
            affected=None if restarted else 0.0,
        )

    def _count(self, now: float) -> Counters:
        """Read the totals: one HTTP request."""
        self._statistics.add(expected(self._page))
        return self._statistics.counters(now)

    def _page(self) -> TFServingMetrics:
        return parse_metrics(metrics_page(self._target).fetch(self._timeout), self._target.model)

    def _flags(self) -> dict[str, str] | None:
        return read_flags(self._processes())

    def _batches(self) -> tuple[np.ndarray, np.ndarray]:
        self.counters()
        return self._statistics.batches()
