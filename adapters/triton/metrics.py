"""Reads Triton's metrics page: latency quantiles, waiting requests and failures by any reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.adapters.connection.security import Security
from tuner.adapters.metrics.page import MetricsPage, is_sane, read_samples

__all__ = ["QUANTILE_MEMORY", "TritonMetrics", "metrics_page", "parse_metrics"]

FAILURES = "nv_inference_request_failure"
PENDING = "nv_inference_pending_request_count"
LATENCY = "nv_inference_request_summary_us"
QUANTILE_MEMORY = 60.0
"""Triton's summaries look back over a sliding window of this many seconds."""


LONGEST_VERSION = 20
"""Digits; longer ones are no numbers of versions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TritonMetrics:
    """What the metrics page says about one model; None or empty for what it does not say."""

    failures: int | None = None
    """Requests failed for any reason since the server started."""
    pending: float | None = None
    """Requests that wait in the server."""
    summaries: bool = False
    """Whether the server exports quantiles; before the first request they have no values."""
    quantiles: Mapping[float, float] = field(default_factory=dict)
    """Quantile of the latency -> s."""


def parse_metrics(text: str, model: str, version: str = "") -> TritonMetrics:
    """Read the page in Prometheus' text format.

    Args:
        text: The page.
        model: The model to look for.
        version: Its version; empty for all. Then counts are added up, and quantiles are those of the newest
            version with traffic.

    Raises:
        AdapterError: The page is malformed.
    """
    failures: list[float] = []
    pending: list[float] = []
    summaries: dict[int, dict[float, float]] = {}
    for name, labels, value in read_samples(
        text, (FAILURES, PENDING, LATENCY), {"model": model}, server="Triton"
    ):
        if version and labels.get("version") != version:
            continue
        if name.startswith(FAILURES):
            failures.append(value)
        elif name == PENDING:
            pending.append(value)
        elif name == LATENCY and "quantile" in labels:
            quantiles = summaries.setdefault(_number(labels.get("version", "")), {})
            if is_sane(value) and (share := _share(labels["quantile"])) is not None:
                quantiles[share] = value / 1e6
    counted = [value for value in failures if is_sane(value)]
    waiting = [value for value in pending if is_sane(value)]
    with_traffic = [version for version, quantiles in summaries.items() if quantiles]
    return TritonMetrics(
        failures=int(sum(counted)) if counted else None,
        pending=sum(waiting) if waiting else None,
        summaries=bool(summaries),
        quantiles=summaries[max(with_traffic)] if with_traffic else {},
    )


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
