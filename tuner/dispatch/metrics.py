"""The metrics that the dispatcher exports to Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from prometheus_client import Counter, Gauge, Histogram, generate_latest

from tuner.dispatch.pool.pool import Pool
from tuner.dispatch.request import Status
from tuner.dispatch.totals import Totals
from tuner.planning.autoscale import METRIC, ScalingAdvice, ScalingWatch
from tuner.web.metrics import make_registry

__all__ = ["Metrics"]

LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.5, 10.0)
"""Bounds of the histograms of durations, s."""
ANSWERED = "ok"
"""What the answers of requests that were not refused count as."""
CLIENTS = (Status.INVALID, Status.NOT_FOUND, Status.UNSUPPORTED)
"""What a request ends with by its client's mistake."""
BEYOND_SERVERS = (*CLIENTS, Status.TOO_LARGE)
"""What a request ends with that says nothing about the number of accelerators."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Bounds of the histogram of batch sizes."""


Metric = TypeVar("Metric", Counter, Histogram)


class Metrics:
    """Counts what happens (a :class:`~tuner.dispatch.pool.observer.Observer`), and writes it as a page.

    Args:
        clock: Returns the time, s.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.totals = Totals()
        self._clock = clock
        self._scaling = ScalingWatch()
        self._series: dict[tuple[Any, ...], Any] = {}
        self.registry = make_registry("servetune_dispatch")
        self._arrivals = self._counter("requests", "Requests that arrived.", "session")
        self._answers = self._counter("answers", "Requests that ended, by how.", "session", "status")
        self._latency = Histogram(
            "servetune_dispatch_latency_seconds",
            "From the arrival of a request to its answer; refused ones are not in it.",
            ["session"],
            buckets=LATENCIES,
            registry=self.registry,
        )
        self._size = Histogram(
            "servetune_dispatch_batch_items",
            "Items of the batches that were executed.",
            ["session", "backend"],
            buckets=SIZES,
            registry=self.registry,
        )
        self._execution = Histogram(
            "servetune_dispatch_execution_seconds",
            "How long backends worked on batches.",
            ["session", "backend"],
            buckets=LATENCIES,
            registry=self.registry,
        )
        self._up = self._gauge("backend_up", "Whether a backend gets batches.", "backend")
        self._ejected = self._gauge(
            "backend_ejected", "Whether a backend is out because others answer what it refuses.", "backend"
        )
        self._lost = self._counter("backend_losses", "How often a backend was taken out.", "backend")
        self._queue = self._gauge("queue_items", "Items that wait.", "session")
        self._overdue = self._gauge(
            "overdue_items", "Items that missed the SLO and wait for a backend with nothing to do.", "session"
        )
        self._trip = self._gauge(
            "round_trip_seconds", "The shortest recent way to a backend and back.", "backend"
        )

        self._desired = Gauge(
            METRIC, "Model instances that a pool should have.", ["pool"], registry=self.registry
        )

    def _gauge(self, name: str, words: str, *labels: str) -> Gauge:
        return Gauge(f"servetune_dispatch_{name}", words, labels, registry=self.registry)

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"servetune_dispatch_{name}", words, labels, registry=self.registry)

    def _of(self, metric: Metric, *labels: str) -> Metric:
        """Return a metric's series with these labels; ``labels`` itself takes longer than the counting."""
        found: Metric | None = self._series.get((metric, *labels))
        if found is None:
            found = self._series[metric, *labels] = metric.labels(*labels)
        return found

    def _begin_counting(self, session: str) -> None:
        """Show what has not happened yet as 0: Prometheus sees no increase where a counter begins with 1."""
        self._of(self._arrivals, session)
        for status in (ANSWERED, *(status.value for status in Status)):
            self._of(self._answers, session, status)

    def arrived(self, session: str) -> None:
        """A request arrived."""
        self._of(self._arrivals, session).inc()
        self.totals.of(session).arrivals += 1

    def taken(self, session: str, items: int) -> None:
        """A request waits for a batch."""
        self.totals.taken(session, items)

    def ended(self, session: str, status: Status | None, seconds: float, late: bool) -> None:
        """A request was answered, or refused."""
        self.totals.ended(session, status, seconds, late)
        if status is Status.INTERNAL:
            self._scaling.failed(session, self._clock())
        elif status not in BEYOND_SERVERS:
            self._scaling.answered(session, self._clock(), bad=late or status is not None)
        self._of(self._answers, session, ANSWERED if status is None else status.value).inc()
        if status is None:
            self._of(self._latency, session).observe(seconds)

    def refused(self, session: str, status: Status) -> None:
        """A request was refused before the dispatcher got it."""
        self.arrived(session)
        self.ended(session, status, 0.0, late=False)

    def executed(self, session: str, server: str, requests: int, items: int, seconds: float) -> None:
        """A batch of so many requests, with so many items in all, was executed."""
        self.totals.executed(session, requests, items, seconds)
        self._scaling.executed(session, self._clock(), seconds)
        self._of(self._size, session, server).observe(items)
        self._of(self._execution, session, server).observe(seconds)

    def switched(self, server: str, up: bool) -> None:
        """A server came or went."""
        self._up.labels(server).set(up)
        if not up:
            self._of(self._lost, server).inc()

    def gone(self, server: str) -> None:
        """A server, which no session has any more, is forgotten."""
        for metric in (self._size, self._execution, self._lost):
            self._remove(key for key in self._series if key[0] is metric and key[-1] == server)

    def session_gone(self, session: str) -> None:
        """A session, which the configuration no longer has, is forgotten."""
        self._remove(key for key in self._series if key[0] is not self._lost and key[1] == session)
        self.totals.forget(session)
        self._scaling.remove(session)

    def _remove(self, series: Iterable[tuple[Any, ...]]) -> None:
        """Remove series by their metrics and labels."""
        for metric, *labels in list(series):
            metric.remove(*labels)
            del self._series[metric, *labels]

    def returned(self, sessions: Sequence[str]) -> None:
        """Sessions have a server again: what was refused until now says nothing about the load."""
        self._scaling.forget(sessions, self._clock())

    def scaling(self, pools: Sequence[Pool]) -> dict[str, ScalingAdvice]:
        """Return how many model instances each pool should have, by its sessions' names."""
        now = self._clock()
        found: dict[str, ScalingAdvice] = {}
        for pool in pools:
            names = [session.name for session in pool.sessions]
            instances = sum(server.instances for server in pool.servers if server.up)
            if not instances:  # the number stays: what is refused says nothing about the load
                self._scaling.forget(names, now)
                instances = sum(server.instances for server in pool.servers)
            found[",".join(names)] = self._scaling.advise(names, now, instances)
        return found

    def page(self, pools: Sequence[Pool]) -> bytes:
        """Return everything in Prometheus' text format."""
        for gauge in (
            self._queue,
            self._overdue,
            self._up,
            self._ejected,
            self._trip,
            self._desired,
        ):  # some sessions may have gone
            gauge.clear()
        for name, advice in self.scaling(pools).items():
            self._desired.labels(name).set(advice.desired)
        for pool in pools:
            for session in pool.sessions:
                self._begin_counting(session.name)
                self._queue.labels(session.name).set(pool.waiting(session.name))
                self._overdue.labels(session.name).set(pool.overdue(session.name))
            for server in pool.servers:
                self._of(self._lost, server.address)
                self._up.labels(server.address).set(server.up)
                self._ejected.labels(server.address).set(server.ejected)
                self._trip.labels(server.address).set(server.round_trip)
        return generate_latest(self.registry)
