"""Counts what TensorFlow Serving counts, and prints it in the same form."""

from __future__ import annotations

import bisect
import threading
from collections import defaultdict
from dataclasses import dataclass, field

__all__ = ["CounterMetric", "HistogramMetric", "Registry"]


def exponential(scale: float, growth: float, count: int) -> list[float]:
    """Return bucket limits as ``monitoring::Buckets::Exponential`` does; one more bucket is above them."""
    return [scale * growth**power for power in range(count)]


@dataclass
class CounterMetric:
    """A number for each set of labels."""

    name: str
    labels: tuple[str, ...]
    values: dict[tuple[str, ...], int] = field(default_factory=lambda: defaultdict(int))

    def add(self, labels: tuple[str, ...]) -> None:
        """Count one more."""
        self.values[labels] += 1

    def lines(self) -> list[str]:
        """Return the lines of the page."""
        lines = [f"# TYPE {self.name} counter"]
        return lines + [f"{self.name}{{{_pairs(self.labels, key)}}} {n}" for key, n in self.values.items()]


@dataclass
class HistogramMetric:
    """A distribution for each set of labels."""

    name: str
    labels: tuple[str, ...]
    limits: list[float]
    counts: dict[tuple[str, ...], list[int]] = field(default_factory=dict)
    sums: dict[tuple[str, ...], float] = field(default_factory=lambda: defaultdict(float))

    def add(self, labels: tuple[str, ...], value: float) -> None:
        """Count a value. TensorFlow Serving counts one that equals a limit above it."""
        counts = self.counts.setdefault(labels, [0] * (len(self.limits) + 1))
        counts[bisect.bisect_right(self.limits, value)] += 1
        self.sums[labels] += value

    def lines(self) -> list[str]:
        """Return the lines of the page; numbers have six digits, as the server's have."""
        lines = [f"# TYPE {self.name} histogram"]
        for key, counts in self.counts.items():
            pairs, total = _pairs(self.labels, key), 0
            start = f"{self.name}_bucket{{{pairs}{',' if pairs else ''}"
            for limit, count in zip([*[f"{limit:g}" for limit in self.limits], "+Inf"], counts, strict=True):
                total += count
                lines.append(f'{start}le="{limit}"}} {total}')
            lines.append(f"{self.name}_sum{{{pairs}}} {self.sums[key]:g}")
            lines.append(f"{self.name}_count{{{pairs}}} {total}")
        return lines


class Registry:
    """All metrics of the server; one lock guards them."""

    def __init__(self) -> None:
        prefix = ":tensorflow:serving:"
        slow = exponential(10, 1.8, 33)
        self._lock = threading.Lock()
        self._requests = CounterMetric(f"{prefix}request_count", ("model_name", "status"))
        self._latency = HistogramMetric(f"{prefix}request_latency", ("model_name", "API", "entrypoint"), slow)
        self._runtime = HistogramMetric(f"{prefix}runtime_latency", ("model_name", "API", "runtime"), slow)
        session = f"{prefix}batching_session:"
        queueing = exponential(100, 1.2, 52)
        self._queue = HistogramMetric(f"{session}queuing_latency", ("thread_pool_name",), queueing)
        self._rows = HistogramMetric(f"{session}input_batch_size", (), exponential(1, 2, 14))
        self._batch = HistogramMetric(f"{session}processed_batch_size", (), exponential(1, 2, 14))
        self._runs = CounterMetric(f"{session}wrapped_run_count", ())

    def request(self, model: str, status: str, seconds: float) -> None:
        """Count a request that has been answered or refused."""
        with self._lock:
            self._requests.add((model, status))
            if status == "OK":
                self._latency.add((model, "Predict", "GRPC"), round(seconds * 1e6))

    def run(self, model: str, seconds: float) -> None:
        """Count a request's time in TensorFlow, the wait for a batch included."""
        with self._lock:
            self._runtime.add((model, "Predict", "TF1"), round(seconds * 1e6))

    def batched(self, rows: int, waited: float, batch: int | None) -> None:
        """Count a batched request.

        Args:
            rows: Its own.
            waited: How long it waited for its batch, s.
            batch: Rows of the batch with padding, if the request is its first; else None.
        """
        with self._lock:
            self._rows.add((), rows)
            self._queue.add(("",), max(round(waited * 1e6), 0))
            if batch is not None:
                self._batch.add((), batch)
                self._runs.add(())

    def page(self) -> str:
        """Return the page."""
        with self._lock:
            metrics = (
                self._requests,
                self._latency,
                self._runtime,
                self._queue,
                self._rows,
                self._batch,
                self._runs,
            )
            return "\n".join([line for metric in metrics for line in metric.lines()]) + "\n"


def _pairs(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in zip(names, values, strict=True))
