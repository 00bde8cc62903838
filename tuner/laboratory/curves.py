"""Curves and bars of runs: the median over seeds, with the least and the greatest, for each agent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tuner.laboratory.agent_run import AgentRun
from tuner.laboratory.metrics import SPAN, Figures, ccdf, figures_of, running_mean
from tuner.report.series import Series, curve

__all__ = ["bars", "by_agent", "exceeding", "over_time"]

POINTS = 150
"""Most points of a curve that are stored."""
THRESHOLDS = 80
"""Latencies at which a distribution is stored."""


def by_agent(runs: Sequence[AgentRun]) -> dict[str, list[AgentRun]]:
    """Group runs by agent, in the order of their first runs."""
    found: dict[str, list[AgentRun]] = {}
    for run in runs:
        found.setdefault(run.spec.label, []).append(run)
    return found


def over_time(
    runs: Sequence[AgentRun], values: Callable[[AgentRun], np.ndarray], panel: str = ""
) -> list[Series]:
    """Return how something went, window by window: running means of ten windows, or more in long runs.

    Args:
        runs: Of equal length.
        values: What of a run is shown.   # (n,)
        panel: Of the figure.
    """
    found = []
    for agent, group in by_agent(runs).items():
        windows = len(group[0].cost)
        span = max(SPAN, math.ceil(windows / POINTS))
        at = np.arange(min(span, windows) - 1, windows, max(span // 2, 1))
        means = np.array([running_mean(values(run), span)[at] for run in group])  # (seeds, points)
        found.append(curve(agent, (at + 1).tolist(), means.T.tolist(), panel=panel))
    return found


def exceeding(
    runs: Sequence[AgentRun], values: Callable[[AgentRun], np.ndarray], panel: str = ""
) -> list[Series]:
    """Return the share of the windows that exceeded a value, on a logarithmic grid of values.

    Where it is 0, there is a gap: the curves are made for logarithmic axes.

    Args:
        runs: Of the same load.
        values: What of a run is shown.   # (n,)
        panel: Of the figure.
    """
    pooled = np.concatenate([values(run) for run in runs])
    pooled = pooled[np.isfinite(pooled) & (pooled > 0)]
    if not pooled.size:
        return []
    at = np.geomspace(0.98 * pooled.min(), pooled.max(), THRESHOLDS)
    found = []
    for agent, group in by_agent(runs).items():
        shares = np.array([ccdf(values(run), at) for run in group])  # (seeds, thresholds)
        found.append(
            Series(
                name=agent,
                panel=panel,
                x=at.tolist(),
                y=_positive(np.median(shares, axis=0)),
                low=_positive(shares.min(axis=0)),
                high=_positive(shares.max(axis=0)),
            )
        )
    return found


def bars(runs: Sequence[AgentRun], value: Callable[[Figures], float], panel: str = "") -> list[Series]:
    """Return one figure of each agent's runs, as a point each, in the order of the agents.

    What is infinite was not reached and counts as the greatest: the median and the high may be missing.
    """
    found = []
    for place, (agent, group) in enumerate(by_agent(runs).items()):
        ordered = sorted(value(figures_of(run)) for run in group)
        middle = float(np.median(ordered)) if not np.isinf(ordered).all() else math.inf
        low, high = (v if math.isfinite(v) else None for v in (ordered[0], ordered[-1]))
        found.append(
            Series(
                name=agent,
                panel=panel,
                x=[float(place)],
                y=[middle if math.isfinite(middle) else None],
                low=[low],
                high=[high],
            )
        )
    return found


def _positive(values: np.ndarray) -> list[float | None]:
    return [round(float(value), 6) if value > 0 else None for value in values]
