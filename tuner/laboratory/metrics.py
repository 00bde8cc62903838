"""The figures that sum up a run: windows until the agent converged, costs, broken SLOs, resources.

An agent has converged at the first window from which on the running mean of the exact cost of what it chose
stays within 5 % of the oracle's over the same windows. The mean is over the last 10 windows, or over all of
them at the beginning. It must stay there for at least 10 windows: an agent that comes near only at the end
has not shown that it stays. Exact costs are the environment's own (:meth:`expected_costs`), so that luck in
measuring does not count. The costs that agents learn from, and the mean cost below, are measured ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tuner.laboratory.agent_run import AgentRun

__all__ = ["NEAR", "SPAN", "Figures", "ccdf", "figures_of", "is_near", "running_mean", "windows_to_converge"]

SPAN = 10
"""Windows that a running mean is over."""
NEAR = 1.05
"""Costs within this factor of the oracle's count as near."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """The figures of one run."""

    windows_to_converge: float
    """Windows until it was near the oracle for good; infinite if never, NaN if no exact costs are known."""
    windows_off: float
    """Windows whose running mean was not near the oracle's; for loads that change, without a "for good"."""
    mean_cost: float
    """Mean of the measured costs."""
    regret: float
    """Mean exact cost over the oracle's, less 1."""
    slo_violations: float
    """Share of the windows that broke the SLO, of those in which something was asked."""
    mean_latency: float
    """Mean over windows of the mean latency, s."""
    p95: float
    """Mean over windows of the p95, s."""
    p99: float
    """Mean over windows of the p99, s."""
    cpu: float
    """Mean cores in use."""
    gpu: float
    """Mean share of the GPU in use; NaN without one."""
    skipped: int
    """Windows that were not learned from."""

    @property
    def resource(self) -> float:
        """Share of the GPU where there is one, else cores in use."""
        return self.cpu if math.isnan(self.gpu) else self.gpu


def figures_of(run: AgentRun) -> Figures:
    """Sum a run up; what was not measured is left out of every mean."""
    near, known = is_near(run.expected, run.best), np.isfinite(run.expected + run.best)
    expected, best = run.expected[known], run.best[known]
    return Figures(
        windows_to_converge=windows_to_converge(run.expected, run.best),
        windows_off=float(np.count_nonzero(~near)) if known.any() else math.nan,
        mean_cost=_mean(run.cost),
        regret=float(expected.sum() / best.sum() - 1.0) if best.size and best.sum() > 0 else math.nan,
        slo_violations=1.0 - _mean(run.kept),
        mean_latency=_mean(run.shown["mean"]),
        p95=_mean(run.shown["p95"]),
        p99=_mean(run.shown["p99"]),
        cpu=_mean(run.shown["cpu"]),
        gpu=_mean(run.shown["gpu"]),
        skipped=run.skipped,
    )


def windows_to_converge(expected: np.ndarray, best: np.ndarray) -> float:
    """Return the window, from 1, from which on the running mean stays near the oracle's.

    Args:
        expected: Exact cost of what was chosen.   # (n,)
        best: Exact cost of the best at the same load.   # (n,)

    Returns:
        Infinite if it never stays there, or for less than ten windows; NaN if no exact cost is known.
    """
    if not np.isfinite(expected + best).any():
        return math.nan
    near = is_near(expected, best)
    off = np.flatnonzero(~near)
    first = int(off[-1]) + 1 if off.size else 0  # from 0
    return float(first + 1) if near.size - first >= SPAN else math.inf


def is_near(expected: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Whether the running mean of exact costs is near the oracle's; true where none is known.   # (n,)."""
    both = np.isfinite(expected + best)  # what has no exact cost is left out on both sides
    chosen = running_mean(np.where(both, expected, math.nan))
    oracle = running_mean(np.where(both, best, math.nan))
    return np.asarray(~(chosen > NEAR * oracle))


def running_mean(values: np.ndarray, span: int = SPAN) -> np.ndarray:
    """Mean of the last ``span`` values, of all there are at the beginning.

    Args:
        values: NaN stands for not measured and is left out.   # (n,)
        span: How many, at least 1.

    Returns:
        NaN where nothing was measured in the whole span.   # (n,)
    """
    measured = np.isfinite(values)
    sums = np.cumsum(np.where(measured, values, 0.0))
    counts = np.cumsum(measured)
    sums[span:], counts[span:] = sums[span:] - sums[:-span], counts[span:] - counts[:-span]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(counts > 0, sums / counts, math.nan))


def ccdf(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Share of the values that exceed each threshold; what was not measured is left out.   # (len(at),)."""
    ordered = np.sort(values[np.isfinite(values)])
    if not ordered.size:
        return np.full(len(at), math.nan)
    return np.asarray(1.0 - np.searchsorted(ordered, at, side="right") / ordered.size)


def _mean(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else math.nan
