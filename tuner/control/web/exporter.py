"""The metrics that the daemon exports to Prometheus: of itself and of its targets."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import Gauge, generate_latest

from tuner.control.daemon.phase import NOT_STORED
from tuner.control.decide.decision import Apply, Rollback
from tuner.control.store.store import ACTIONS
from tuner.control.web.target_metrics import RECENT, TargetMetrics
from tuner.web.metrics import make_registry

if TYPE_CHECKING:
    from tuner.control.daemon.phase import AbsentTarget
    from tuner.control.daemon.report import WorkerReport
    from tuner.control.daemon.worker import Worker
    from tuner.control.decide.orders import Orders
    from tuner.objective import Slo
    from tuner.planning.pools.replan import PoolDecision

__all__ = ["Exporter"]

VERDICTS = ("kept", "broken", "unusable", "away")
"""What windows count as."""
ENDS = {
    "observe": (),
    "recommend": ("recommended",),
    "apply": ("applied", "failed", "interrupted", "postponed"),
}
"""What comes of decisions to change a server, by the mode of the target."""


class Exporter:
    """Collects what workers report, and writes it in Prometheus' text format.

    Life: the threads of workers call `report`, that of the web server `page`.
    """

    def __init__(self) -> None:
        self.registry = make_registry("servetune")
        self._lock = threading.Lock()
        self._recent: dict[str, deque[bool]] = {}
        self._judged: dict[str, tuple[int | None, Slo]] = {}  # the server of these windows, and their SLO
        self._known: set[str] = set()
        self._metrics = TargetMetrics(self.registry)

    def report(self, name: str, report: WorkerReport) -> None:
        """Update the metrics with one turn of a target."""
        record, m, metrics = report.record, report.record.measurement, self._metrics
        with self._lock:
            self._known.add(name)
            self._begin_anew(name, report)
            metrics.decisions.labels(name, ACTIONS[type(record.decision)], record.outcome).inc()
            if isinstance(record.decision, Rollback) and record.outcome == "applied":
                metrics.rollbacks.labels(name).inc()
            if record.report is not None:
                metrics.change.labels(name).observe(record.report.seconds)
            metrics.failed.labels(name).set(report.failed_changes)
            metrics.foreign.labels(name).inc(report.foreign_changes)
            if isinstance(record.decision, Apply) and record.outcome == "applied":
                metrics.expected.labels(name).set(record.decision.expected)
                metrics.observed.labels(name).set(math.nan)
            metrics.knob.remove_by_labels({"target": name})  # the target may have other knobs now
            for knob, value in report.running.items():
                metrics.knob.labels(name, knob).set(value)
            # A pool may have gone, or the advice be unknown.
            metrics.desired.remove_by_labels({"target": name})
            for pool, advice in report.scaling.items():
                metrics.desired.labels(name, pool).set(advice.desired)
            if m is None:
                metrics.windows.labels(name, "away").inc()
                return
            metrics.last.labels(name).set(time.time())
            metrics.loop.labels(name).observe(max(record.lag, 0.0))
            metrics.show(name, m.figures())
            verdict = "unusable" if report.unused else "kept" if report.kept else "broken"
            metrics.windows.labels(name, verdict).inc()
            if not report.unused:
                self._usable(name, report)

    def _begin_anew(self, name: str, report: WorkerReport) -> None:
        """Forget verdicts and costs of another server of that name, or under another SLO."""
        judged, metrics = (report.target, report.slo), self._metrics
        if self._judged.setdefault(name, judged) == judged:
            return
        self._judged[name] = judged
        self._recent.pop(name, None)
        for metric in (metrics.attainment, metrics.cost, metrics.expected, metrics.observed):
            metric.remove_by_labels({"target": name})

    def _usable(self, name: str, report: WorkerReport) -> None:
        cost = report.record.cost
        self._metrics.cost.labels(name).set(cost)
        if report.first_after_change:
            self._metrics.observed.labels(name).set(cost)
        recent = self._recent.setdefault(name, deque(maxlen=RECENT))
        recent.append(report.kept)
        self._metrics.attainment.labels(name).set(sum(recent) / len(recent))

    def attainment(self, name: str) -> float | None:
        """Return the share of the last usable windows that kept the SLO; None if there were none."""
        with self._lock:
            recent = self._recent.get(name)
            return sum(recent) / len(recent) if recent else None

    def page(self, targets: Mapping[str, Worker | AbsentTarget], orders: Mapping[str, Orders]) -> bytes:
        """Return everything in Prometheus' text format.

        Args:
            targets: All present targets, by name.
            orders: The orders of operators, by target.
        """
        metrics = self._metrics
        with self._lock:
            for gone in self._known - set(targets):
                metrics.forget(gone)
                self._recent.pop(gone, None)
                self._judged.pop(gone, None)
            self._known = set(targets)
            # Modes, objectives and pools may have changed.
            pools = (metrics.pool, metrics.pool_gain, metrics.pool_cost)
            for metric in (metrics.info, metrics.slo, *pools):
                metric.clear()
            for name, target in targets.items():
                config = target.config
                self._begin_counting(name, ENDS[config.mode])
                metrics.info.labels(name, config.mode, str(config.slo), config.objective).set(1)
                metrics.length.labels(name).set(config.window)
                metrics.slo.labels(name, config.slo.statistic).set(config.slo.latency)
                measured = target.phase == "running"
                metrics.up.labels(name).set(measured)
                # An outage says nothing about the load. A store that fails is none; KEDA takes nothing for 0.
                if not (measured or target.phase.startswith(NOT_STORED)):
                    metrics.desired.remove_by_labels({"target": name})
                if target.advisor is not None and target.advisor.latest is not None:
                    self._advise(name, target.advisor.latest)
                order = orders.get(name)
                metrics.paused.labels(name).set(order is not None and bool(order.paused))
                metrics.pinned.labels(name).set(order is not None and order.pinned is not None)
            return generate_latest(self.registry)

    def _begin_counting(self, name: str, ends: Iterable[str]) -> None:
        """Show what has not happened yet as 0: Prometheus sees no increase where a counter begins with 1."""
        metrics = self._metrics
        for metric in (metrics.rollbacks, metrics.foreign, metrics.change, *metrics.measured.values()):
            if not isinstance(metric, Gauge):
                metric.labels(name)
        for verdict in VERDICTS:
            self._metrics.windows.labels(name, verdict)
        for action, end in itertools.product((ACTIONS[Apply], ACTIONS[Rollback]), ends):
            self._metrics.decisions.labels(name, action, end)

    def _advise(self, name: str, advice: PoolDecision) -> None:
        self._metrics.pool_gain.labels(name).set(advice.gain)
        self._metrics.pool_cost.labels(name).set(advice.switch.cost)
        for kind, count in advice.pool.items():
            self._metrics.pool.labels(name, kind).set(count)
