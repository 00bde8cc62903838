"""Validation: checks whether something can be learned from a window, and whether its figures can be true."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from tuner.duration import format_duration
from tuner.measurement import QUANTILES, STATISTICS, Measurement
from tuner.objective import Objective

__all__ = ["LOOKS_BACK", "implausible", "unusable"]

LONGEST = 3600.0
"""Longest latency that is believed, s."""
SLACK = 0.05
"""Share by which a quantile may lie below a lower one: servers estimate each by itself."""
LOOKS_BACK = "the server's quantiles still look back to before this window, when conditions were others"


def unusable(m: Measurement, objective: Objective) -> str:
    """Return why a window says nothing about its configuration; empty if it does.

    Whoever learns from windows, counts them or keeps them for a later life asks here.

    Args:
        m: The window.
        objective: Needs some of its quantities.
    """
    if m.disturbed:
        return "; ".join(m.disturbed)
    if m.asked == m.arrival_rate == 0:
        return "no request came"
    if problem := implausible(m):
        return problem
    if objective.too_short(m):
        return f"it ended before unanswered requests had waited for {format_duration(objective.slo.latency)}"
    if not math.isfinite(objective.cost(m)):
        return f"{objective.slo.statistic} or {objective.goal} was not measured"
    return LOOKS_BACK if m.quantiles_mixed and objective.slo.statistic != "mean" else ""


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
    latencies = {name: m.latency(name) for name in STATISTICS}
    for name, latency in latencies.items():
        if latency < 0 or latency > LONGEST or (latency == 0 and m.requests > 0):
            yield f"the {name} latency is {latency:g} s"
    quantiles = [latencies[name] for name in QUANTILES if not math.isnan(latencies[name])]
    if any(high < low * (1 - SLACK) for low, high in pairwise(quantiles)):
        yield "quantiles of the latency are out of order"
    if m.cpu < 0 or math.isinf(m.cpu):
        yield f"{m.cpu:g} cores were used"
    if not (math.isnan(m.gpu) or 0 <= m.gpu <= 1 + SLACK):
        yield f"the GPU was used {m.gpu:.0%} of the time"
