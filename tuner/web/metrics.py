"""What the metrics of all our processes have in common."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, disable_created_metrics

from tuner import __version__

__all__ = ["PROMETHEUS", "make_registry"]

disable_created_metrics()  # type: ignore[no-untyped-call]  # twice the lines, and nobody reads them

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of a page of metrics."""


def make_registry(prefix: str) -> CollectorRegistry:
    """Return a registry with the version of servetune and the metrics of this process.

    Args:
        prefix: Of the names of its metrics.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    info = Gauge(f"{prefix}_build_info", "Version of servetune.", ["version"], registry=registry)
    info.labels(__version__).set(1)
    return registry
