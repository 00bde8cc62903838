"""Makes totals of a model from readings of the metrics page, and estimates how long batches take.

The page says how long requests were in TensorFlow and how long they waited for their batch, but not how
long a batch of b rows takes. That is found by comparing readings: where rows were in larger batches, requests
took longer in execution. A line l(b) = alpha*b + beta is fitted to all readings so far. The time of the
executions between two readings is divided among them along that line, so that it adds up to what the page
says.
"""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np

from tuner.adapters.backend import Counters
from tuner.adapters.metrics.histogram import Histogram, PrintedSum, print_error
from tuner.adapters.tfserving.metrics import Buckets, TFServingMetrics

__all__ = ["Statistics", "largest_request"]

MICROSECONDS = 1e-6
HISTOGRAMS = tuple(
    field.name
    for field in fields(TFServingMetrics)
    if field.name not in ("requests", "failures", "beyond_servers", "others")
)


class BucketTotal:
    """One histogram, added up over restarts of the server.

    Args:
        first: What was there when the adapter was opened.
    """

    def __init__(self, first: Buckets | None) -> None:
        self._last = first
        self._sum = PrintedSum(first.sum if first is not None else 0.0)
        self.bounds = np.array([np.inf]) if first is None else first.bounds  # (n,)
        self.counts = np.zeros(self.bounds.size, np.int64)
        """Entries since opening.   # (n,)"""

    @property
    def sum(self) -> float:
        """Sum of the entries since opening."""
        return self._sum.total

    def fell(self, now: Buckets | None) -> bool:
        """Whether the server began at 0 again."""
        if self._last is None:
            return False
        return now is None or (
            self._last.counts.size == now.counts.size and bool((now.counts < self._last.counts).any())
        )

    def add(self, now: Buckets | None, *, reset: bool) -> tuple[np.ndarray, float]:
        """Add what the page says now.

        Returns:
            New entries by bucket.   # (n,) int64
            Their sum.
        """
        if now is None:
            self._last = None if reset else self._last
            return np.zeros_like(self.counts), 0.0
        if now.bounds.size != self.bounds.size:  # the first entries, or another version of the server
            self.bounds, self.counts = now.bounds, np.zeros(now.bounds.size, np.int64)
            reset = True
        fresh = reset or self._last is None
        new = now.counts - (0 if fresh or self._last is None else self._last.counts)
        middles = Histogram(now.bounds, now.counts).middles()
        scale = now.sum / max(float(now.counts @ middles), 1e-9)
        before = self._sum.total
        self._sum.add(now.sum, float(new @ middles) * scale, reset=fresh)
        self.counts = self.counts + new
        self._last = now
        return new, self._sum.total - before


class Statistics:
    """Adds readings up; totals begin at 0 with the first.

    Args:
        first: The page when the adapter was opened.
        largest: Batch sizes above are counted as this one.
    """

    def __init__(self, first: TFServingMetrics, largest: int) -> None:
        self.restarts = 0
        """How often the server began at 0 again."""
        self._largest = largest
        self._last = first
        self._requests = self._failures = self._beyond_servers = 0
        self._totals = {name: BucketTotal(getattr(first, name)) for name in HISTOGRAMS}
        self._queue = self._compute = self._inferences = 0.0
        self._executions = np.zeros(largest + 1)
        self._batch_seconds = np.zeros(largest + 1)
        self._behind = 0  # requests of batches that were still executed at the last reading
        self._line = RunningLine()

    def add(self, now: TFServingMetrics) -> None:
        """Add the latest page."""
        last, self._last = self._last, now
        reset = now.requests < last.requests or now.failures < last.failures
        reset = reset or any(total.fell(getattr(now, name)) for name, total in self._totals.items())
        self.restarts += reset
        self._behind = 0 if reset else self._behind
        requests = now.requests - (0 if reset else last.requests)
        self._requests += requests
        self._failures += now.failures - (0 if reset else last.failures)
        self._beyond_servers += max(now.beyond_servers - (0 if reset else last.beyond_servers), 0)
        new = {name: total.add(getattr(now, name), reset=reset) for name, total in self._totals.items()}
        others = now.others - (0 if reset else last.others)
        self._add_executions(new, requests, alone=others <= 0)

    def counters(self, time: float) -> Counters:
        """Return the totals, as they were at a time on the monotonic clock."""
        latency = self._totals["latency"]
        return Counters(
            time=time,
            requests=self._requests,
            failures=self._failures,
            beyond_servers=self._beyond_servers,
            latency=latency.sum * MICROSECONDS,
            queue=self._queue,
            compute=self._compute,
            inferences=round(self._inferences),
            batch_counts=self._batch_counts(),
            batch_seconds=self._batch_seconds.copy(),
            latencies=Histogram(latency.bounds * MICROSECONDS, latency.counts),
            restarts=self.restarts,
        )

    def batches(self) -> tuple[np.ndarray, np.ndarray]:
        """Return executions per batch size and the seconds in them.   # (B+1,), (B+1,) s."""
        return self._batch_counts(), self._batch_seconds

    def _batch_counts(self) -> np.ndarray:
        """Return executions per batch size: whole ones, of what may be a share of those of all models."""
        return np.rint(self._executions).astype(np.int64)

    def _add_executions(
        self, new: dict[str, tuple[np.ndarray, float]], requests: int, *, alone: bool
    ) -> None:
        """Add what was executed between two readings.

        Args:
            new: Entries by bucket of each histogram, and their sum.
            requests: Those that were answered.
            alone: Whether other models had none: else the queues and batches are of all models together.
        """
        ran, runtime = int(new["runtime"][0].sum()), new["runtime"][1] * MICROSECONDS
        batched, waited = int(new["queue"][0].sum()), new["queue"][1] * MICROSECONDS
        ours = min(ran / batched, 1.0) if batched else 1.0
        waited = min(waited * ours, runtime)
        entries, rows = int(new["rows"][0].sum()), new["rows"][1]
        rows_each = max(rows / entries, 1.0) if entries else 1.0
        self._queue += waited
        self._compute += runtime - waited
        self._inferences += min(batched, ran) * rows_each + max(requests - batched, 0)
        counts = self._sizes(self._totals["batch"].bounds, *new["batch"]) * (1.0 if alone else ours)
        unbatched = ran - batched - self._behind  # an execution for each
        self._behind = max(-unbatched, 0) if alone and (batched or not ran) else 0
        counts[1] += max(unbatched, 0)
        self._executions += counts
        self._batch_seconds += self._line.share(counts, runtime - waited, ran, rows_each)

    def _sizes(self, bounds: np.ndarray, new: np.ndarray, rows: float) -> np.ndarray:
        """Return executions per batch size. All of a bucket get one size, chosen so that the rows add up."""
        counts = np.zeros(self._largest + 1, np.int64)
        if not new.any():
            return counts
        low = np.concatenate(([1.0], bounds[:-1]))
        high = np.where(np.isfinite(bounds), np.maximum(bounds - 1, low), low)  # what is below the bound
        spread = float(new @ (high - low))
        place = min(max((rows - float(new @ low)) / spread, 0.0), 1.0) if spread else 0.0
        sizes = np.minimum(np.round(low + place * (high - low)), self._largest).astype(int)
        np.add.at(counts, sizes, new)
        return counts


class RunningLine:
    """Fits l(b) = alpha*b + beta, both at least 0, to readings as they come."""

    def __init__(self) -> None:
        # Weight, and weighted x, y, xx, xy, where x is the rows in a request's batch and y its seconds.
        self._sums = np.zeros(5)

    def share(self, counts: np.ndarray, seconds: float, requests: int, rows_each: float) -> np.ndarray:
        """Return the time spent in executions of each size.

        Args:
            counts: Executions per batch size.   # (B+1,)
            seconds: Time in execution of all requests, each counting its whole batch.
            requests: How many they are.
            rows_each: Rows of a request.

        Returns:
            The time.   # (B+1,) s
        """
        sizes = np.arange(counts.size)
        rows = float(counts @ sizes)
        if not (rows > 0 and seconds > 0 and requests > 0):
            return np.zeros(counts.size)
        x, y = float(counts @ sizes**2) / rows, seconds / requests
        self._sums += requests * np.array([1.0, x, y, x * x, x * y])
        alpha, beta = self._fit()
        line = alpha * sizes + beta
        # A request counts the time of its whole batch, so a batch of b rows is counted b/rows_each times.
        times = float(counts @ (sizes * line)) / rows_each
        return np.asarray(counts * line * (seconds / times)) if times > 0 else np.zeros(counts.size)

    def _fit(self) -> tuple[float, float]:
        weight, x, y, xx, xy = self._sums
        spread = xx / weight - (x / weight) ** 2
        if spread < 1e-3:
            return 0.0, y / weight
        alpha = max((xy / weight - x * y / weight**2) / spread, 0.0)
        beta = (y - alpha * x) / weight
        return (alpha, beta) if beta >= 0 else (xy / xx, 0.0)


def largest_request(rows: Buckets | None, ran: float = math.inf, *, alone: bool = True) -> int:
    """Return how many rows the largest request may have had; with a lower batch limit the server refuses it.

    Args:
        rows: The histogram of rows of requests, since the server started; None if none was batched.
        ran: The lowest batch limit that served these clients. The answer is no more than that, else what runs
            could not be changed, nor come back; unless there surely were larger requests, such as since the
            limit was raised.
        alone: Whether the server has no requests to other models: then the largest was surely one of ours.
    """
    if rows is None or not rows.counts.any():
        return 1
    low = np.concatenate(([1.0], rows.bounds[:-1]))
    top = int(np.flatnonzero(rows.counts)[-1])
    least = low[top]
    spare = rows.sum + print_error(rows.sum) - float(rows.counts @ low)  # rows that the buckets do not show
    most = min(least + max(spare, 0.0), max(rows.bounds[top] - 1, least))
    return int(most if alone and least > ran else min(most, ran))
