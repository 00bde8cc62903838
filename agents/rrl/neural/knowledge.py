"""What is known of a server before its configurations are tried: l(b), its machine, and a window or two."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["SIZES", "Reference", "ServerKnowledge", "complete_profile"]

SIZES = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
"""Batch sizes at which l(b) is described; in between it is interpolated."""
TYPICAL_SLOPE = 0.25
"""Where only one batch size was seen: each further request is taken to cost this share of l(1)."""
DOUBT_PER_DOUBLING = 0.25
"""How much less sure l(b) is with every doubling beyond the largest batch that was seen, and with every
halving below the smallest."""
LEAST_DOUBT, MOST_DOUBT = 0.02, 1.0
"""Standard deviations of the logarithm of l(b)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """What was seen in the windows of one configuration: RRL's ``(c_t, r_t)``, which other costs rest on."""

    configuration: int
    """Its number."""
    rate: float
    """The load, requests/s."""
    latencies: np.ndarray
    """Mean, p50, p95 and p99, s; NaN where nobody measured them.   # (4,)"""
    use: float
    """Cores in use (of a GPU: its share); NaN where nobody measured it."""
    inside: np.ndarray
    """Mean time in execution and in the queue, s, and mean batch; NaN where nobody measured them.   # (3,)"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerKnowledge:
    """What the estimator knows of a server.

    Raises:
        ValueError: A time is not positive, or shapes differ.
    """

    cores: float
    """CPU cores of its machine."""
    gpu: bool = False
    """Whether executions run on a GPU."""
    seconds: np.ndarray
    """l(b) at :data:`SIZES`, s.   # (7,)"""
    doubt: np.ndarray
    """Standard deviation of its logarithm.   # (7,)"""
    rows: float = 1.0
    """Rows of a request: batches, l(b) and the formulas count rows."""
    burstiness: float = 1.0
    """Index of dispersion of the arrivals; 1 for Poisson, or where it is not known."""
    reference: Reference | None = None
    """A configuration that was watched."""

    def __post_init__(self) -> None:
        if self.seconds.shape != SIZES.shape or self.doubt.shape != SIZES.shape:
            raise ValueError(f"`seconds` and `doubt` need {SIZES.size} values each")
        if not (self.seconds > 0).all() or not self.cores > 0:
            raise ValueError(f"`seconds > 0` and `cores > 0` must hold, but got {self}")

    def execution(self, batch: np.ndarray) -> np.ndarray:
        """Return l(b), linear in between and beyond the last size.   # like ``batch``, s."""
        slope = (self.seconds[-1] - self.seconds[-2]) / (SIZES[-1] - SIZES[-2])
        beyond = np.maximum(batch - SIZES[-1], 0.0) * max(slope, 0.0)
        return np.asarray(np.interp(batch, SIZES, self.seconds) + beyond)


def complete_profile(seen: Mapping[float, tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Return l(b) at all sizes from those that were seen.

    Between two sizes it is a line. Beyond the largest it goes on with the mean slope of all that were seen,
    and below the smallest it falls with it, to a tenth of what was seen there at least; the farther away, the
    more doubt. It never falls with the size.

    Args:
        seen: Batch size -> seconds of one execution, and the standard deviation of its logarithm.

    Returns:
        l(b) and the standard deviation of its logarithm.   # (7,) s, (7,)

    Raises:
        ValueError: Nothing was seen, or in no time.
    """
    known = {float(b): pair for b, pair in sorted(seen.items()) if pair[0] > 0 and math.isfinite(pair[0])}
    if not known:
        raise ValueError("l(b) needs at least one batch size that was executed")
    sizes = np.array(list(known))
    seconds = np.maximum.accumulate(np.array([value for value, _ in known.values()]))
    doubt = np.array([value for _, value in known.values()])
    if sizes.size > 1:
        slope = (seconds[-1] - seconds[0]) / (sizes[-1] - sizes[0])
    else:
        slope = TYPICAL_SLOPE * seconds[0] / (1.0 + TYPICAL_SLOPE * (sizes[0] - 1.0))
    values = np.interp(SIZES, sizes, seconds) + np.maximum(SIZES - sizes[-1], 0.0) * slope
    values -= np.minimum(np.maximum(sizes[0] - SIZES, 0.0) * slope, 0.9 * seconds[0])
    doublings = np.maximum(np.log2(SIZES / sizes[-1]), 0.0) + np.maximum(np.log2(sizes[0] / SIZES), 0.0)
    known_doubt = np.interp(np.log2(SIZES), np.log2(sizes), doubt)
    total = np.hypot(known_doubt, DOUBT_PER_DOUBLING * doublings)
    return values, np.clip(total, LEAST_DOUBT, MOST_DOUBT)
