"""Reads Triton's metrics page: latency quantiles, waiting requests and failures by any reason."""

from __future__ import annotations

import http.client
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from tuner.errors import AdapterError, InvalidInput, TimedOut, Unreachable

__all__ = ["QUANTILE_MEMORY", "MetricsReading", "fetch_metrics", "parse_metrics"]

FAILURES = "nv_inference_request_failure"
PENDING = "nv_inference_pending_request_count"
LATENCY = "nv_inference_request_summary_us"
LARGEST_PAGE = 16_000_000
"""A page of more bytes is refused; a thousand models need about 7 MB."""
QUANTILE_MEMORY = 60.0
"""Triton's summaries look back over a sliding window of this many seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsReading:
    """What the metrics page says about one model; quantities that it lacks are None or empty."""

    failures: int | None = None
    """Requests failed for any reason since the server started."""
    pending: float | None = None
    """Requests that wait in the server."""
    summaries: bool = False
    """Whether quantiles are exported; they have no values before the first request."""
    quantiles: Mapping[float, float] = field(default_factory=dict)
    """Quantile of the latency -> s."""


def parse_metrics(text: str, model: str, version: str = "") -> MetricsReading:
    """Read the page in Prometheus' text format.

    Args:
        text: The page.
        model: The model to look for.
        version: Its version; empty for all: counts are added, quantiles are those of the newest with traffic.

    Raises:
        AdapterError: The page is malformed.
    """
    failures: list[float] = []
    pending: list[float] = []
    summaries: dict[int, dict[float, float]] = {}
    for name, labels, value in _samples(text, model):
        if version and labels.get("version") != version:
            continue
        if name.startswith(FAILURES):
            failures.append(value)
        elif name == PENDING:
            pending.append(value)
        elif name == LATENCY and "quantile" in labels:
            quantiles = summaries.setdefault(_number(labels.get("version", "")), {})
            if _sane(value):
                quantiles[float(labels["quantile"])] = value / 1e6
    counted = [value for value in failures if _sane(value)]
    waiting = [value for value in pending if _sane(value)]
    with_traffic = [version for version, quantiles in summaries.items() if quantiles]
    return MetricsReading(
        failures=int(sum(counted)) if counted else None,
        pending=sum(waiting) if waiting else None,
        summaries=bool(summaries),
        quantiles=summaries[max(with_traffic)] if with_traffic else {},
    )


def _samples(text: str, model: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    # Only the lines of interest are parsed: the page has about 55 lines for each model of the server.
    escaped = model.replace("\\", "\\\\").replace('"', '\\"')
    starts = tuple(f"{name}{{" for name in (FAILURES, f"{FAILURES}_total", PENDING, LATENCY))
    lines = [line for line in text.splitlines() if line.startswith(starts) and f'model="{escaped}"' in line]
    try:
        for family in text_string_to_metric_families("\n".join([*lines, ""])):
            for sample in family.samples:
                if sample.labels.get("model") == model:
                    yield sample.name, sample.labels, float(sample.value)
    except (ValueError, KeyError, IndexError) as error:
        raise AdapterError(f"Triton's metrics cannot be read: {error}") from error


def _sane(value: float) -> bool:
    return math.isfinite(value) and value >= 0


def _number(version: str) -> int:
    return int(version) if version.isascii() and version.isdigit() else 0


def fetch_metrics(host: str, port: int, timeout: float) -> str:
    """Fetch the metrics page.

    Args:
        host: Name or address.
        port: Triton's metrics port.
        timeout: Longest wait for each step of the answer, s.

    Raises:
        Unreachable: The port is closed.
        TimedOut: It did not answer in time.
        InvalidInput: What answers there is not Triton's metrics service.
    """
    fix = "start Triton with --allow-metrics=true, or correct 'metrics=' in the target (or metrics=off)"
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        body = answer.read(LARGEST_PAGE + 1)
    except TimeoutError as error:
        raise TimedOut(f"metrics port {port}: no answer within {timeout:g} s; {fix}") from error
    except OSError as error:
        raise Unreachable(f"metrics port {port}: {error.strerror or error}; {fix}") from error
    except http.client.HTTPException as error:
        raise InvalidInput("metrics", f"port {port} does not speak HTTP", fix) from error
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK or len(body) > LARGEST_PAGE or not body.strip().startswith(b"#"):
        raise InvalidInput("metrics", f"port {port} answers, but not with Triton's metrics", fix)
    return body.decode("utf-8", errors="replace")
