"""Declares the metrics of the daemon's targets: their names, what they mean, and their labels."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tuner.measurement import QUANTITIES
from tuner.planning.autoscale import METRIC

__all__ = ["RECENT", "TargetMetrics"]

RECENT = 100
"""How many usable windows the attainment of the SLO looks back."""
LATENCIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Bounds of the histogram of loop latencies, s."""


class TargetMetrics:
    """The metrics of targets; each has the name of the target as its first label.

    Args:
        registry: Where they are registered.

    Attributes:
        measured: Those of the measured quantities, by name.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.info = self._gauge(
            "target_info", "Mode, SLO and objective of a target.", "mode", "slo", "objective"
        )
        self.up = self._gauge("target_up", "Whether a target is measured at present, and that stored.")
        self.paused = self._gauge("target_paused", "Whether an operator has paused it.")
        self.pinned = self._gauge("target_pinned", "Whether an operator has pinned it.")
        self.length = self._gauge(
            "target_window_seconds", "Length of its windows, before they are lengthened."
        )
        self.slo = self._gauge("slo_latency_seconds", "The latency that the SLO allows.", "statistic")
        self.measured = self._quantities()
        self.knob = self._gauge("knob", "The configuration of the server.", "knob")
        self.cost = self._gauge("cost", "Cost of the last usable window.")
        self.last = self._gauge(
            "last_window_timestamp_seconds", "When the last window that could be measured ended."
        )
        self.attainment = self._gauge(
            "slo_attainment_ratio", f"Share of the last {RECENT} usable windows that kept the SLO."
        )
        self.expected = self._gauge(
            "expected_cost", "Learned cost of the last change, rollbacks aside, before it was made."
        )
        self.observed = self._gauge("observed_cost", "Cost of the first usable window after that change.")
        self.desired = Gauge(
            METRIC, "Servers that a target should have.", ["target", "pool"], registry=registry
        )
        self.pool = self._gauge("advised_instances", "Instances that should run behind it, by type.", "type")
        self.pool_gain = self._gauge("advised_pool_gain_ratio", "More requests/s with the advised instances.")
        self.pool_cost = self._gauge("advised_pool_switch_dollars", "Price of a switch to them.")
        self.windows = self._counter("windows", "Windows by what they showed.", "slo")
        self.decisions = self._counter("decisions", "Decisions by action and outcome.", "action", "outcome")
        self.rollbacks = self._counter("rollbacks", "Changes that were taken back.")
        self.foreign = self._counter("foreign_changes", "Changes of the server by somebody else.")
        self.failed = self._gauge("failed_changes_in_a_row", "Changes in a row that have failed.")
        self.change = Histogram(
            "servetune_change_seconds", "How long changes took.", ["target"], registry=registry
        )
        self.loop = Histogram(
            "servetune_loop_latency_seconds",
            "From the end of a window until its decision was made and written down.",
            ["target"],
            buckets=LATENCIES,
            registry=registry,
        )
        metrics = [*vars(self).values(), *self.measured.values()]
        self._by_target = [m for m in metrics if isinstance(m, Gauge | Counter | Histogram)]

    def show(self, target: str, figures: Mapping[str, float]) -> None:
        """Show what a window of a target measured, by the names of the quantities."""
        for quantity in QUANTITIES:
            metric, value = self.measured[quantity.metric], figures[quantity.name]
            if isinstance(metric, Counter):
                metric.labels(target).inc(max(value, 0))
            else:
                labels = (target, quantity.statistic) if quantity.statistic else (target,)
                metric.labels(*labels).set(value)

    def forget(self, target: str) -> None:
        """Drop the values of a target."""
        for metric in self._by_target:
            metric.remove_by_labels({"target": target})

    def _gauge(self, name: str, words: str, *labels: str) -> Gauge:
        return Gauge(f"servetune_{name}", words, ["target", *labels], registry=self._registry)

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"servetune_{name}", words, ["target", *labels], registry=self._registry)

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
