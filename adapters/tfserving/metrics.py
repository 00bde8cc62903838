"""Reads TensorFlow Serving's metrics page: requests, latencies, queueing and batches.

The page differs from what one might expect:

* names begin with a colon; what the server calls ``/tensorflow/serving/x`` is ``:tensorflow:serving:x``;
* durations are in microseconds;
* requests and latencies have the model's name as a label, but what is said of batches is of all models of the
  server together;
* a bucket ``le="8"`` holds what is *below* 8, not what is at most 8: a batch of 8 rows is in ``le="16"``;
* sums are printed with six digits;
* questions at the REST port for what a model is doing, as health probes ask, are timed as requests of no API,
  and may be counted as requests.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tuner.adapters.metrics.page import MetricsPage, Sample, is_sane, read_samples
from tuner.adapters.tfserving.target import TFServingTarget

__all__ = ["Buckets", "TFServingMetrics", "metrics_page", "parse_metrics"]

PREFIX = ":tensorflow:serving:"
REQUESTS = f"{PREFIX}request_count"
LATENCY = f"{PREFIX}request_latency"
RUNTIME = f"{PREFIX}runtime_latency"
QUEUE = f"{PREFIX}batching_session:queuing_latency"
BATCH = f"{PREFIX}batching_session:processed_batch_size"
ROWS = f"{PREFIX}batching_session:input_batch_size"
BEYOND_SERVERS = {
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "FAILED_PRECONDITION",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "DATA_LOSS",
    "UNAUTHENTICATED",
}
"""Statuses that requests would have had with any number of servers; a full queue is ``UNAVAILABLE``."""
LARGEST_COUNT = 2**50
"""Larger numbers from a server are clipped, so that sums of them fit the arrays."""
LEAST_BOUND, LARGEST_BOUND = 1e-6, 1e15
"""Bounds of buckets beyond are left out: microseconds, or rows."""
FIX = (
    "start TensorFlow Serving with --rest_api_port={port} --monitoring_config_file=FILE, FILE having "
    'prometheus_config {{ enable: true path: "{path}" }}, or correct rest= or metrics='
)


@dataclass(frozen=True, eq=False, slots=True)
class Buckets:
    """One histogram as it is on the page, of all label sets together."""

    bounds: np.ndarray
    """Upper bounds, increasing, the last infinite; in the page's unit.   # (n,)"""
    counts: np.ndarray
    """Entries of each bucket, not cumulated.   # (n,) int64"""
    sum: float
    """In the page's unit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TFServingMetrics:
    """What the page says; None for a histogram without entries yet."""

    requests: int
    """Requests to the model that were answered: those that were timed, where the page times them."""
    failures: int
    """Requests to it that were refused or failed."""
    beyond_servers: int
    """Those of them that would have with any number of servers."""
    others: int
    """Requests to other models."""
    latency: Buckets | None
    """From receipt to answer, us."""
    runtime: Buckets | None
    """In TensorFlow, the wait for a batch included, us."""
    queue: Buckets | None
    """The wait for a batch, us; of all models."""
    batch: Buckets | None
    """Rows of executed batches, with padding; of all models."""
    rows: Buckets | None
    """Rows of batched requests; of all models."""


def metrics_page(target: TFServingTarget) -> MetricsPage:
    """Return where the metrics of a server are."""
    return MetricsPage(
        server="TensorFlow Serving",
        host=target.host,
        port=target.rest_port,
        path=target.metrics_path,
        fix=FIX.format(port=target.rest_port, path=target.metrics_path),
        security=target.security,
    )


def parse_metrics(text: str, model: str) -> TFServingMetrics:
    """Read the page in Prometheus' text format.

    Args:
        text: The page.
        model: The model to look for.

    Raises:
        AdapterError: The page is malformed.
    """
    found = _by_metric(read_samples(text, _NAMES, server="TensorFlow Serving"))
    counted = {True: 0, False: 0}
    others = beyond = 0
    for _, labels, value in found[REQUESTS]:
        if not is_sane(value):
            continue
        if labels.get("model_name") == model:
            count = min(int(value), LARGEST_COUNT)
            counted[labels.get("status") == "OK"] += count
            beyond += count if labels.get("status") in BEYOND_SERVERS else 0
        else:
            others += min(int(value), LARGEST_COUNT)
    timed = any(labels.get("model_name") == model for _, labels, _ in found[LATENCY])
    latency = _buckets([sample for sample in found[LATENCY] if sample[1].get("API") != ""], model)
    answered = 0 if latency is None else min(int(latency.counts.sum()), LARGEST_COUNT)
    return TFServingMetrics(
        requests=answered if timed else counted[True],
        failures=counted[False],
        beyond_servers=beyond,
        others=others,
        latency=latency,
        runtime=_buckets(found[RUNTIME], model),
        queue=_buckets(found[QUEUE]),
        batch=_buckets(found[BATCH]),
        rows=_buckets(found[ROWS]),
    )


_HISTOGRAMS = (LATENCY, RUNTIME, QUEUE, BATCH, ROWS)
_NAMES = (REQUESTS, *[f"{name}{part}" for name in _HISTOGRAMS for part in ("_bucket", "_sum")])


def _by_metric(samples: Iterable[Sample]) -> Mapping[str, list[Sample]]:
    found: dict[str, list[Sample]] = defaultdict(list)
    for name, labels, value in samples:
        metric = name.removesuffix("_total").removesuffix("_bucket").removesuffix("_sum")
        found[metric].append((name, labels, value))
    return found


def _buckets(samples: Iterable[Sample], model: str | None = None) -> Buckets | None:
    """Add the histograms of all label sets up, those of failed requests left out."""
    cumulated: dict[float, int] = defaultdict(int)
    total = 0.0
    for name, labels, value in samples:
        ours = model is None or labels.get("model_name") == model
        if not ours or labels.get("status", "OK") != "OK" or not is_sane(value):
            continue
        if name.endswith("_sum"):
            total += value
        else:
            cumulated[_bound(labels.get("le", ""))] += min(int(value), LARGEST_COUNT)
    bounds = sorted(bound for bound in cumulated if bound > 0)
    if not bounds:
        return None
    counts = np.diff([0, *[cumulated[bound] for bound in bounds]])
    return Buckets(np.array(bounds), np.maximum(counts, 0), total)


def _bound(text: str) -> float:
    """Return the upper bound of a bucket, 0 for what cannot be one: ratios of bounds must be numbers, too."""
    try:
        bound = float(text)
    except ValueError:
        return 0.0
    return bound if LEAST_BOUND <= bound <= LARGEST_BOUND or bound == math.inf else 0.0
