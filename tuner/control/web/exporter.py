"""The metrics that the daemon exports to Prometheus: of itself and of its targets."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram, generate_latest

from tuner.control.decide.decision import Apply, Rollback
from tuner.control.store.store import ACTIONS
from tuner.measurement import QUANTITIES
from tuner.planning.autoscale import METRIC
from tuner.web.metrics import make_registry

if TYPE_CHECKING:
    from tuner.control.daemon.phase import AbsentTarget
    from tuner.control.daemon.report import WorkerReport
    from tuner.control.daemon.worker import Worker
    from tuner.control.decide.orders import Orders
    from tuner.objective import Slo
    from tuner.planning.pools.replan import PoolDecision

__all__ = ["Exporter"]

RECENT = 100
"""How many usable windows the attainment of the SLO looks back."""
VERDICTS = ("kept", "broken", "unusable", "away")
"""What windows count as."""
ENDS = {
    "observe": (),
    "recommend": ("recommended",),
    "apply": ("applied", "failed", "interrupted", "postponed"),
}
"""What comes of decisions to change a server, by the mode of the target."""
LATENCIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Bounds of the histogram of loop latencies, s."""


class Exporter:
    """Collects what workers report, and writes it in Prometheus' text format.

    Life: the threads of workers call `report`, that of the web server `page`.
    """

    def __init__(self) -> None:
        self.registry = make_registry("servetune")
        self._lock = threading.Lock()
        self._recent: dict[str, deque[bool]] = {}
        self._slos: dict[str, Slo] = {}  # by which these windows were judged
        self._known: set[str] = set()
        self._info = self._gauge(
            "target_info", "Mode, SLO and objective of a target.", "mode", "slo", "objective"
        )
        self._up = self._gauge("target_up", "Whether a target is measured at present.")
        self._paused = self._gauge("target_paused", "Whether an operator has paused it.")
        self._pinned = self._gauge("target_pinned", "Whether an operator has pinned it.")
        self._length = self._gauge(
            "target_window_seconds", "Length of its windows, before they are lengthened."
        )
        self._slo = self._gauge("slo_latency_seconds", "The latency that the SLO allows.", "statistic")
        self._measured = self._quantities()
        self._knob = self._gauge("knob", "The configuration of the server.", "knob")
        self._cost = self._gauge("cost", "Cost of the last usable window.")
        self._last = self._gauge(
            "last_window_timestamp_seconds", "When the last window that could be measured ended."
        )
        self._attainment = self._gauge(
            "slo_attainment_ratio", f"Share of the last {RECENT} usable windows that kept the SLO."
        )
        self._expected = self._gauge(
            "expected_cost", "Learned cost of the last change, rollbacks aside, before it was made."
        )
        self._observed = self._gauge("observed_cost", "Cost of the first usable window after that change.")
        self._desired = Gauge(
            METRIC, "Servers that a target should have.", ["target", "pool"], registry=self.registry
        )
        self._pool = self._gauge("advised_instances", "Instances that should run behind it, by type.", "type")
        self._pool_gain = self._gauge(
            "advised_pool_gain_ratio", "More requests/s with the advised instances."
        )
        self._pool_cost = self._gauge("advised_pool_switch_dollars", "Price of a switch to them.")
        self._windows = self._counter("windows", "Windows by what they showed.", "slo")
        self._decisions = self._counter("decisions", "Decisions by action and outcome.", "action", "outcome")
        self._rollbacks = self._counter("rollbacks", "Changes that were taken back.")
        self._failed = self._gauge("failed_changes_in_a_row", "Changes in a row that have failed.")
        self._change = Histogram(
            "servetune_change_seconds", "How long changes took.", ["target"], registry=self.registry
        )
        self._loop = Histogram(
            "servetune_loop_latency_seconds",
            "From the end of a window until its decision was made and written down.",
            ["target"],
            buckets=LATENCIES,
            registry=self.registry,
        )
        metrics = [*vars(self).values(), *self._measured.values()]
        self._by_target = [m for m in metrics if isinstance(m, Gauge | Counter | Histogram)]

    def _gauge(self, name: str, words: str, *labels: str) -> Gauge:
        return Gauge(f"servetune_{name}", words, ["target", *labels], registry=self.registry)

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"servetune_{name}", words, ["target", *labels], registry=self.registry)

    def _quantities(self) -> dict[str, Gauge | Counter]:
        """Return the metrics of the quantities: counters, and gauges of the last window."""
        found: dict[str, Gauge | Counter] = {}
        for quantity in QUANTITIES:
            name, meaning = quantity.metric, quantity.meaning
            if quantity.counted:
                found[name] = self._counter(name, f"{meaning}.")
            elif not quantity.statistic:
                found[name] = self._gauge(name, f"{meaning}, in the last window.")
            elif name not in found:
                found[name] = self._gauge(name, "Latency in the last window.", "statistic")
        return found

    def report(self, name: str, report: WorkerReport) -> None:
        """Update the metrics with one turn of a target."""
        record, m = report.record, report.record.measurement
        with self._lock:
            self._known.add(name)
            self._decisions.labels(name, ACTIONS[type(record.decision)], record.outcome).inc()
            if isinstance(record.decision, Rollback) and record.outcome == "applied":
                self._rollbacks.labels(name).inc()
            if record.report is not None:
                self._change.labels(name).observe(record.report.seconds)
            self._failed.labels(name).set(report.failed_changes)
            if isinstance(record.decision, Apply) and record.outcome == "applied":
                self._expected.labels(name).set(record.decision.expected)
                self._observed.labels(name).set(math.nan)
            self._knob.remove_by_labels({"target": name})  # the target may have other knobs now
            for knob, value in report.running.items():
                self._knob.labels(name, knob).set(value)
            self._desired.remove_by_labels({"target": name})  # a pool may have gone, or the advice be unknown
            for pool, advice in report.scaling.items():
                self._desired.labels(name, pool).set(advice.desired)
            if m is None:
                self._windows.labels(name, "away").inc()
                return
            self._last.labels(name).set(time.time())
            self._loop.labels(name).observe(max(record.lag, 0.0))
            self._show(name, m.figures())
            verdict = "unusable" if report.unused else "kept" if report.kept else "broken"
            self._windows.labels(name, verdict).inc()
            if not report.unused:
                self._usable(name, report)

    def _show(self, name: str, figures: Mapping[str, float]) -> None:
        for quantity in QUANTITIES:
            metric, value = self._measured[quantity.metric], figures[quantity.name]
            if isinstance(metric, Counter):
                metric.labels(name).inc(max(value, 0))
            else:
                labels = (name, quantity.statistic) if quantity.statistic else (name,)
                metric.labels(*labels).set(value)

    def _usable(self, name: str, report: WorkerReport) -> None:
        cost = report.record.cost
        self._cost.labels(name).set(cost)
        if report.first_after_change:
            self._observed.labels(name).set(cost)
        if self._slos.get(name) != report.slo:  # verdicts under another SLO say nothing of this one
            self._recent.pop(name, None)
        self._slos[name] = report.slo
        recent = self._recent.setdefault(name, deque(maxlen=RECENT))
        recent.append(report.kept)
        self._attainment.labels(name).set(sum(recent) / len(recent))

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
        with self._lock:
            for gone in self._known - set(targets):
                for metric in self._by_target:
                    metric.remove_by_labels({"target": gone})
                self._recent.pop(gone, None)
            self._known = set(targets)
            for metric in (self._info, self._slo, self._pool):  # modes, objectives and pools may have changed
                metric.clear()
            for name, target in targets.items():
                config = target.config
                self._begin_counting(name, ENDS[config.mode])
                self._info.labels(name, config.mode, str(config.slo), config.objective).set(1)
                self._length.labels(name).set(config.window)
                self._slo.labels(name, config.slo.statistic).set(config.slo.latency)
                measured = target.phase == "running"
                self._up.labels(name).set(measured)
                if not measured:  # an outage says nothing about the load
                    self._desired.remove_by_labels({"target": name})
                if target.advisor is not None and target.advisor.latest is not None:
                    self._advise(name, target.advisor.latest)
                order = orders.get(name)
                self._paused.labels(name).set(order is not None and bool(order.paused))
                self._pinned.labels(name).set(order is not None and order.pinned is not None)
            return generate_latest(self.registry)

    def _begin_counting(self, name: str, ends: Iterable[str]) -> None:
        """Show what has not happened yet as 0: Prometheus sees no increase where a counter begins with 1."""
        for metric in (self._rollbacks, self._change, *self._measured.values()):
            if not isinstance(metric, Gauge):
                metric.labels(name)
        for verdict in VERDICTS:
            self._windows.labels(name, verdict)
        for action, end in itertools.product((ACTIONS[Apply], ACTIONS[Rollback]), ends):
            self._decisions.labels(name, action, end)

    def _advise(self, name: str, advice: PoolDecision) -> None:
        self._pool_gain.labels(name).set(advice.gain)
        self._pool_cost.labels(name).set(advice.switch.cost)
        for kind, count in advice.pool.items():
            self._pool.labels(name, kind).set(count)
