"""The batching profile l(b): batch size -> execution latency, linear where that fits.

``l(b) = alpha * b + beta`` (Symphony and Nexus). Fitted here from how often each batch size was
executed and how long that took in all, which is what servers count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.rounding import ROUNDING

__all__ = ["FEW", "BatchingProfile", "best_batch", "fit_profile"]

FEW = 5
"""Executions of a batch size below which their mean time is noise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchingProfile:
    """How long one execution of a batch takes, ``l(b) = alpha * b + beta``.

    Raises:
        ValueError: ``alpha >= 0`` and ``beta >= 0`` with a positive sum must hold.
    """

    alpha: float
    """Seconds more per request in the batch."""
    beta: float
    """Seconds per execution, whatever its size."""
    residual: float = 0.0
    """Root mean square error of the fit, weighted by executions, in seconds."""
    largest: int = 1
    """The largest batch size that was seen; beyond it the line is extrapolated."""
    executions: int = 0
    """How many executions the fit rests on."""

    def __post_init__(self) -> None:
        if not (self.alpha >= 0 and self.beta >= 0 and self.alpha + self.beta > 0):
            raise ValueError(f"`alpha >= 0`, `beta >= 0` and a positive sum must hold, but got {self}")

    def latency(self, batch: float) -> float:
        """Return l(batch) in seconds."""
        return self.alpha * batch + self.beta

    def throughput(self, batch: float) -> float:
        """Return the requests per second of one instance that always runs this batch size."""
        return batch / self.latency(batch)


def fit_profile(counts: np.ndarray, seconds: np.ndarray, *, few: int = FEW) -> BatchingProfile | None:
    """Fit l(b) to totals per batch size by least squares weighted with the number of executions.

    Args:
        counts: Executions per batch size.   # (B+1,), counts[0] unused
        seconds: Time spent in them.   # (B+1,) s, seconds[0] unused
        few: Batch sizes with fewer executions are ignored.

    Returns:
        The profile, or None if nothing was executed, or in no time. With one batch size only, the split
        between alpha and beta cannot be known: all of it is taken as beta, which is right where weights
        dominate.
    """
    sizes = np.flatnonzero(counts >= few)
    sizes = sizes[sizes > 0]
    if sizes.size == 0 or not seconds[sizes].sum() > 0:
        return None
    weights = counts[sizes].astype(float)
    means = seconds[sizes] / weights
    executions = int(weights.sum())
    alpha, beta = _weighted_line(sizes.astype(float), means, weights)
    errors = means - (alpha * sizes + beta)
    residual = float(np.sqrt(np.average(errors**2, weights=weights)))
    return BatchingProfile(
        alpha=alpha, beta=beta, residual=residual, largest=int(sizes[-1]), executions=executions
    )


def best_batch(latency: np.ndarray, longest: float) -> int:
    """Return the batch size with the highest throughput of those that execute within ``longest`` s, or 0."""
    sizes = np.flatnonzero(latency[1:] <= longest * (1 + ROUNDING)) + 1
    if not sizes.size:
        return 0
    throughput = sizes / latency[sizes]
    return int(sizes[np.flatnonzero(throughput >= throughput.max() * (1 - ROUNDING))[-1]])


def _weighted_line(sizes: np.ndarray, means: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Return alpha and beta, both at least 0 (a negative one is pinned to 0 and the other refitted)."""
    if sizes.size == 1:
        return 0.0, float(means[0])
    alpha, beta = np.polyfit(sizes, means, 1, w=np.sqrt(weights))
    if alpha < 0:
        return 0.0, float(np.average(means, weights=weights))
    if beta < 0:
        return float(np.average(means * sizes, weights=weights) / np.average(sizes**2, weights=weights)), 0.0
    return float(alpha), float(beta)
