"""Reads Triton's metrics page: latency quantiles, waiting requests, failures by any reason, and the GPUs.

Triton names the GPU of an instance in the samples that it counts for it (``gpu_uuid``), which says on which
GPUs a model is. The page shows the use of all GPUs that the server sees, sampled every two seconds unless
``--metrics-interval-ms`` says otherwise.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuner.adapters.connection.security import Security
from tuner.adapters.metrics.gpu import GpuUse
from tuner.adapters.metrics.page import MetricsPage, Sample, is_sane, read_samples
from tuner.rounding import ROUNDING

__all__ = ["QUANTILE_MEMORY", "TritonMetrics", "metrics_page", "parse_metrics"]

FAILURES = "nv_inference_request_failure"
PENDING = "nv_inference_pending_request_count"
LATENCY = "nv_inference_request_summary_us"
TIMED = f"{LATENCY}_count"
INFERENCES = "nv_inference_count"
GPU = "gpu_uuid"
"""The label with the GPU's name."""
OF_GPUS = {
    "nv_gpu_utilization": "share",
    "nv_gpu_memory_used_bytes": "memory",
    "nv_gpu_power_usage": "power",
    "nv_energy_consumption": "energy",
}
"""Metric -> field of :class:`~tuner.adapters.metrics.gpu.GpuUse`."""
MEMORY = "nv_gpu_memory_total_bytes"
"""This, and all else of a GPU, is 0 until a fresh Triton first samples it after two seconds."""
QUANTILE_MEMORY = 60.0
"""Triton's summaries look back over a sliding window of this many seconds."""


LONGEST_VERSION = 20
"""Digits; longer ones are no numbers of versions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TritonMetrics:
    """What the metrics page says about one model; None or empty for what it does not say."""

    failures: Mapping[str, int] = field(default_factory=dict)
    """Requests failed since the version was loaded, by version and reason."""
    pending: float | None = None
    """Requests that wait in the server."""
    exported: frozenset[float] = frozenset()
    """The quantiles that the server exports; before the first request they have no values."""
    quantiles: Mapping[float, float] = field(default_factory=dict)
    """Quantile of the latency -> s."""
    gpus: tuple[GpuUse, ...] = ()
    """Those that the model's instances are on."""


def parse_metrics(text: str, model: str, version: str = "", *, on_gpu: bool = False) -> TritonMetrics:
    """Read the page in Prometheus' text format.

    Args:
        text: The page.
        model: The model to look for.
        version: Its version; empty for all. Then waiting requests are added up, and quantiles are those of
            the newest version with traffic, of all GPUs together.
        on_gpu: Whether its configuration puts it on GPUs: if no sample says on which, the page's only one.

    Raises:
        AdapterError: The page is malformed.
    """
    names = (FAILURES, PENDING, LATENCY, TIMED, INFERENCES)
    samples = [
        (name, labels, value)
        for name, labels, value in read_samples(text, names, {"model": model}, server="Triton")
        if not version or labels.get("version") == version
    ]
    waiting = [value for name, _, value in samples if name == PENDING and is_sane(value)]
    exported, quantiles = _quantiles(samples)
    devices = {labels[GPU] for _, labels, _ in samples if GPU in labels}
    return TritonMetrics(
        failures=_failures(samples),
        pending=sum(waiting) if waiting else None,
        exported=exported,
        quantiles=quantiles,
        gpus=_gpus(text, devices, on_gpu=on_gpu),
    )


def _failures(samples: Sequence[Sample]) -> Counter[str]:
    """Count the failed requests by version and reason."""
    failures: Counter[str] = Counter()
    for name, labels, value in samples:
        if name.startswith(FAILURES) and is_sane(value):
            failures[f"{labels.get('version', '')} {labels.get('reason', '')}"] += int(value)
    return failures


def _quantiles(samples: Sequence[Sample]) -> tuple[frozenset[float], dict[float, float]]:
    """Return the quantiles that are exported, and those of the newest version with traffic, s."""
    exported = set()
    timed: dict[tuple[int, str], float] = {}
    by_version: dict[int, dict[str, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    for name, labels, value in samples:
        version, gpu = _number(labels.get("version", "")), labels.get(GPU, "")
        if name == TIMED and is_sane(value):
            timed[version, gpu] = value
        if name == LATENCY and (share := _share(labels.get("quantile", ""))) is not None:
            exported.add(share)
            if is_sane(value):
                by_version[version][gpu][share] = value / 1e6
    if not by_version:
        return frozenset(exported), {}
    newest = max(by_version)
    parts = [(max(timed.get((newest, gpu), 0.0), 1.0), each) for gpu, each in by_version[newest].items()]
    return frozenset(exported), _together(parts)


def _together(parts: Sequence[tuple[float, Mapping[float, float]]]) -> dict[float, float]:
    """Return the quantiles of all requests, s: Triton has some for each GPU, and for instances on none.

    Each is the least known latency that surely so many of the requests do not exceed: where the parts are
    alike, the worst.

    Args:
        parts: How many requests each has answered, and their quantiles.
    """
    answered = sum(count for count, _ in parts)
    known = sorted(
        (latency, share, place)
        for place, (_, quantiles) in enumerate(parts)
        for share, latency in quantiles.items()
    )
    wanted = sorted({share for _, share, _ in known}, reverse=True)
    found: dict[float, float] = {}
    surely, reached = 0.0, [0.0] * len(parts)  # shares that take no longer, of all and of each part
    for latency, share, place in known:
        surely += max(share - reached[place], 0.0) * parts[place][0] / answered
        reached[place] = max(share, reached[place])
        while wanted and surely >= wanted[-1] * (1 - ROUNDING):
            found[wanted.pop()] = latency
    return found


def _gpus(text: str, devices: set[str], *, on_gpu: bool) -> tuple[GpuUse, ...]:
    """Return what the page says of the GPUs of a model, by their names."""
    if not (devices or on_gpu):
        return ()
    seen: dict[str, dict[str, float]] = {}
    unsampled = set()
    for name, labels, value in read_samples(text, (*OF_GPUS, MEMORY), server="Triton"):
        if GPU in labels and name in OF_GPUS and is_sane(value):
            seen.setdefault(labels[GPU], {})[OF_GPUS[name]] = value
        if GPU in labels and name == MEMORY and value == 0:
            unsampled.add(labels[GPU])
    seen = {uuid: {} if uuid in unsampled else figures for uuid, figures in seen.items()}
    if not devices and len(seen) == 1:
        devices = set(seen)
    return tuple(GpuUse(uuid=uuid, **seen[uuid]) for uuid in sorted(devices & set(seen)))


def _share(text: str) -> float | None:
    """Return the quantile that a label names; None if it names none."""
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 <= share <= 1 else None


def _number(version: str) -> int:
    return int(version) if version.isascii() and version.isdigit() and len(version) <= LONGEST_VERSION else 0


def metrics_page(host: str, port: int, security: Security | None = None) -> MetricsPage:
    """Return where the metrics of a Triton server are."""
    fix = "start Triton with --allow-metrics=true, or correct 'metrics=' in the target (or metrics=off)"
    return MetricsPage(
        server="Triton", host=host, port=port, path="/metrics", fix=fix, security=security or Security()
    )
