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
    given = [histogram for histogram in histograms if histogram is not None]
    if len(given) < len(histograms):
        return None
    known = [histogram for histogram in given if histogram.counts.any()]
    if not known:
        return given[0]
    if any(not np.array_equal(histogram.bounds, known[0].bounds) for histogram in known):
        return None
    return Histogram(known[0].bounds, np.sum([histogram.counts for histogram in known], axis=0))


def total(answered: Iterable[Counters], others: Iterable[Counters] = (), *, restarts: int = 0) -> Counters:
    """Return the sum of totals; of quantiles, which cannot be added, the worst that is known.

    Args:
        answered: Readings of the replicas that answer. What is so now is only known of these: quantiles,
            waiting requests and GPUs.
        others: The last readings of those that are away or gone, whose totals count on.
        restarts: How often a replica came or went; added to the restarts of the replicas themselves.
    """
    present = list(answered)
    each = [*present, *others]
    length = max(len(reading.batch_counts) for reading in each)

    def added(name: str) -> Any:
        return sum(getattr(reading, name) for reading in each)

    def padded(name: str) -> np.ndarray:
        arrays = [getattr(reading, name) for reading in each]
        return np.asarray(sum(np.pad(array, (0, length - len(array))) for array in arrays))

    histograms = [reading.latencies for reading in each]
    pending = [reading.pending for reading in present if reading.pending is not None]
    timed = [reading.quantiles for reading in present if reading.quantiles]  # one that idles has none
    shares = set.intersection(*[set(quantiles) for quantiles in timed] or [set()])
    return Counters(
        time=max(reading.time for reading in each),
        requests=added("requests"),
        failures=added("failures"),
        beyond_servers=added("beyond_servers"),
        latency=added("latency"),
        queue=added("queue"),
        compute=added("compute"),
        inferences=added("inferences"),
        batch_counts=padded("batch_counts"),
        batch_seconds=padded("batch_seconds"),
        pending=sum(pending) if pending else None,
        quantiles={share: max(quantiles[share] for quantiles in timed) for share in sorted(shares)},
        latencies=merged(histograms),
        restarts=added("restarts") + restarts,
        gpus=tuple({gpu.uuid: gpu for reading in present for gpu in reading.gpus}.values()),
    )
