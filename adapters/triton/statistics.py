"""Reads Triton's statistics of a model, which it keeps per version and per batch size.

They begin at 0 again on each reload and restart; :class:`~tuner.adapters.metrics.totals.MonotonicTotals` adds
them up over these. What was counted between our last reading and the reset is lost, so the adapter goes on
reading during each change of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tuner.adapters.metrics.totals import Key, Reading
from tuner.errors import AdapterError

__all__ = ["batch_arrays", "failure_readings", "largest_request", "read_statistics"]

REQUESTS: Key = ("requests", 0)
FAILURES: Key = ("failures", 0)
BEYOND: Key = ("beyond servers", 0)
"""Failures that any number of servers would have had."""
LATENCY: Key = ("latency", 0)
QUEUE: Key = ("queue", 0)
COMPUTE: Key = ("compute", 0)
INFERENCES: Key = ("inferences", 0)
CACHED: Key = ("cached", 0)
"""Requests that the response cache answered; they count as requests, but not as inferences."""
MOST_ENTRIES = 65536
"""Versions and batch sizes together; with more, the answer is refused."""
BACKEND = "BACKEND"
"""The reason of failures in the execution of a model; what waits for too long is rejected or canceled."""
LARGEST_COUNT = 2**62
"""Larger numbers from a server are clipped: they would not fit the arrays."""


def read_statistics(response: Any) -> dict[str, Reading]:
    """Translate a ``ModelStatisticsResponse`` to one reading per version; durations in nanoseconds.

    A batch's time is that of input, inference and output together, because its instance is busy all that
    time.

    Raises:
        AdapterError: There are more numbers than a model can have.
    """
    entries = sum(1 + len(stats.batch_stats) for stats in response.model_stats)
    if entries > MOST_ENTRIES:
        raise AdapterError(
            f"Triton's statistics of the model have {entries} entries, more than {MOST_ENTRIES}"
        )
    return {stats.version: _reading(stats) for stats in response.model_stats}


def failure_readings(failures: Mapping[str, int]) -> dict[str, Reading]:
    """Return failures of a metrics page as readings, each of which begins at 0 again by itself.

    Args:
        failures: By version and reason, with a space between them.
    """
    return {
        part: {FAILURES: count, BEYOND: count if part.endswith(f" {BACKEND}") else 0}
        for part, count in failures.items()
    }


def _reading(stats: Any) -> Reading:
    of_requests = stats.inference_stats
    parts = (of_requests.compute_input, of_requests.compute_infer, of_requests.compute_output)
    reading = {
        REQUESTS: of_requests.success.count,
        FAILURES: of_requests.fail.count,
        LATENCY: of_requests.success.ns,
        QUEUE: of_requests.queue.ns,
        COMPUTE: sum(part.ns for part in parts),
        INFERENCES: stats.inference_count,
        CACHED: of_requests.cache_hit.count,
    }
    for batch in stats.batch_stats:
        parts = (batch.compute_input, batch.compute_infer, batch.compute_output)
        reading["batch_count", batch.batch_size] = batch.compute_infer.count
        reading["batch_ns", batch.batch_size] = sum(part.ns for part in parts)
    return {key: min(int(value), LARGEST_COUNT) for key, value in reading.items()}


def batch_arrays(totals: Mapping[Key, int], largest: int) -> tuple[np.ndarray, np.ndarray]:
    """Return executions and seconds per batch size, sizes above ``largest`` left out.

    Returns:
        Counts.   # (largest+1,) int64
        Time in them.   # (largest+1,) s
    """
    counts = np.zeros(largest + 1, np.int64)
    seconds = np.zeros(largest + 1)
    for (name, size), value in totals.items():
        if name == "batch_count" and 0 < size <= largest:
            counts[size] = value
        elif name == "batch_ns" and 0 < size <= largest:
            seconds[size] = value / 1e9
    return counts, seconds


def largest_request(readings: Mapping[str, Reading], *, batching: bool, ran: int = MOST_ENTRIES) -> int:
    """Return how many rows the largest request may have; with a lower limit the server may refuse requests.

    It would count them nowhere, so that nobody could see that from then on they fail.

    Args:
        readings: Statistics since the model was loaded, by version.
        batching: Whether an execution may have been of several requests. If not, the largest execution was
            one request. Else only the mean is known: where all requests can have that many rows, they are
            taken to have; where they cannot, the largest may have been a whole batch.
        ran: The lowest batch limit that served these clients. Larger requests than that are only taken into
            account where there surely are some: else what ran before could not come back.
    """
    sizes = [
        size
        for reading in readings.values()
        for (name, size), count in reading.items()
        if name == "batch_count" and count
    ]
    largest = max(sizes, default=1)
    if not batching:
        return largest
    requests = sum(reading[REQUESTS] - reading.get(CACHED, 0) for reading in readings.values())
    inferences = sum(reading[INFERENCES] for reading in readings.values())
    if requests <= 0:
        return 1
    mean = max(1, -(-inferences // requests))
    if mean * requests == inferences and not any(size % mean for size in sizes):
        return mean
    return max(mean, min(largest, ran))
