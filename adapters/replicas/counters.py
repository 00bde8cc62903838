"""Adds up what several replicas count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tuner.adapters.backend import Counters
from tuner.adapters.metrics.histogram import Histogram

__all__ = ["merged", "total"]


def merged(histograms: Sequence[Histogram | None]) -> Histogram | None:
    """Return the histogram of all; None if one has no histogram or different buckets."""
    known = [histogram for histogram in histograms if histogram is not None and histogram.counts.any()]
    if not known or any(histogram is None for histogram in histograms):
        return histograms[0]
    if any(not np.array_equal(histogram.bounds, known[0].bounds) for histogram in known):
        return None
    return Histogram(known[0].bounds, np.sum([histogram.counts for histogram in known], axis=0))


def total(readings: Iterable[Counters], *, restarts: int) -> Counters:
    """Return the sum of totals; of quantiles, which cannot be added, the worst.

    Args:
        readings: One for each replica.
        restarts: How often a replica came or went; added to the restarts of the replicas themselves.
    """
    each = list(readings)
    length = max(len(reading.batch_counts) for reading in each)

    def added(name: str) -> Any:
        return sum(getattr(reading, name) for reading in each)

    def padded(name: str) -> np.ndarray:
        arrays = [getattr(reading, name) for reading in each]
        return np.asarray(sum(np.pad(array, (0, length - len(array))) for array in arrays))

    histograms = [reading.latencies for reading in each]
    pending = [reading.pending for reading in each if reading.pending is not None]
    shares = set.intersection(*[set(reading.quantiles) for reading in each if reading.requests] or [set()])
    return Counters(
        time=max(reading.time for reading in each),
        requests=added("requests"),
        failures=added("failures"),
        latency=added("latency"),
        queue=added("queue"),
        compute=added("compute"),
        inferences=added("inferences"),
        batch_counts=padded("batch_counts"),
        batch_seconds=padded("batch_seconds"),
        pending=sum(pending) if pending else None,
        quantiles={s: max(r.quantiles[s] for r in each if r.requests) for s in sorted(shares)},
        latencies=merged(histograms),
        restarts=added("restarts") + restarts,
        gpus=tuple(gpu for reading in each for gpu in reading.gpus),
    )
