"""Validation: checks whether the figures of a window can be true, because servers' answers may be wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from tuner.measurement import Measurement

__all__ = ["implausible"]

LONGEST = 3600.0
"""Longest latency that is believed, s."""
SLACK = 0.05
"""Share by which a quantile may lie below a lower one: servers estimate each by itself."""


def implausible(measurement: Measurement) -> str | None:
    """Return why the figures of a window cannot be true; None if they can. NaN, not measured, is accepted."""
    return next(_problems(measurement), None)


def _problems(m: Measurement) -> Iterator[str]:
    if not m.seconds > 0:
        yield f"the window is {m.seconds:g} s long"
    if m.requests < 0 or m.failures < 0:
        yield f"{m.requests} requests and {m.failures} failures were counted"
    if m.arrival_rate < 0 or math.isinf(m.arrival_rate):
        yield f"{m.arrival_rate:g} requests/s came"
    latencies = {name: m.latency(name) for name in ("mean", "p50", "p95", "p99")}
    for name, latency in latencies.items():
        if latency < 0 or latency > LONGEST or (latency == 0 and m.requests > 0):
            yield f"the {name} latency is {latency:g} s"
    quantiles = [latencies[name] for name in ("p50", "p95", "p99") if not math.isnan(latencies[name])]
    if any(high < low * (1 - SLACK) for low, high in pairwise(quantiles)):
        yield "quantiles of the latency are out of order"
    if m.cpu < 0 or math.isinf(m.cpu):
        yield f"{m.cpu:g} cores were used"
    if not (math.isnan(m.gpu) or 0 <= m.gpu <= 1 + SLACK):
        yield f"the GPU was used {m.gpu:.0%} of the time"
