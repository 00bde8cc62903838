"""Latencies counted in buckets, as servers export them, and quantiles between the bounds of the buckets.

Of a bucket only its count is known. Prometheus' ``histogram_quantile`` draws a straight line through it,
which is 12 % off at p95 for buckets that grow by a factor of 1.8 (median over lognormal, gamma and shifted
exponential latencies). Here the logarithm of the share of slower requests is interpolated over the logarithm
of the latency by a monotone cubic through the bounds of all buckets, which is 1 % off at p95 and 3 % at p99.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tuner.measurement import NOT_KNOWN

__all__ = ["Histogram", "PrintedSum", "print_error"]

UNSEEN = 0.3
"""Requests assumed to be slower than the last bucket with any: the usual median rank of a maximum."""
SIX_DIGITS = 1e-5


@dataclass(frozen=True, eq=False, slots=True)
class Histogram:
    """Counts of durations by bucket. They are totals, so two readings can be subtracted."""

    bounds: np.ndarray
    """Upper bounds, increasing; the last may be infinite.   # (n,) s"""
    counts: np.ndarray
    """Durations in each bucket, not cumulated.   # (n,) int64"""

    def since(self, earlier: Histogram) -> Histogram:
        """Return what came after an earlier reading; nothing if its buckets are others and not empty."""
        if not np.array_equal(self.bounds, earlier.bounds):
            return Histogram(self.bounds, np.zeros_like(self.counts) if earlier.counts.any() else self.counts)
        return Histogram(self.bounds, np.maximum(self.counts - earlier.counts, 0))

    def quantile(self, share: float) -> float:
        """Return the duration that this share of all stays below, s; NaN if there are none."""
        total = int(self.counts.sum())
        if total == 0:
            return NOT_KNOWN
        edges = _edges(self.bounds)
        slower = 1.0 - np.concatenate(([0.0], np.cumsum(self.counts) / total))
        used = slice(int(np.flatnonzero(self.counts)[0]), int(np.flatnonzero(self.counts)[-1]) + 2)
        # Empty buckets make steps; a hair of slope keeps the curve invertible.
        depth = -np.log(np.maximum(slower[used], UNSEEN / total)) + 1e-9 * np.arange(slower[used].size)
        wanted = -math.log(max(1.0 - share, UNSEEN / total))
        return float(np.exp(monotone_cubic(depth, np.log(edges[used]), min(wanted, float(depth[-1])))))

    def middles(self) -> np.ndarray:
        """Return a duration that stands for each bucket.   # (n,) s."""
        edges = _edges(self.bounds)
        return np.asarray(np.sqrt(edges[:-1] * edges[1:]))


def _edges(bounds: np.ndarray) -> np.ndarray:
    """Return the edges of all buckets.

    The first has no lower bound and the last may have no upper one. They get the width of their neighbour, on
    the logarithmic scale.
    """
    finite = bounds[np.isfinite(bounds)] if np.isfinite(bounds).any() else np.ones(1)
    growth = finite[-1] / finite[-2] if finite.size > 1 else 2.0
    first = finite[0] / (finite[1] / finite[0] if finite.size > 1 else 2.0)
    last = [finite[-1] * growth] * int(bounds.size - finite.size)
    return np.concatenate(([first], finite, last))


def monotone_cubic(x: np.ndarray, y: np.ndarray, at: float) -> float:
    """Interpolate by the piecewise cubic that never overshoots (Fritsch and Butland, 1984).

    The same as ``scipy.interpolate.PchipInterpolator``, whose import would cost a command that only observes
    40 MB and a second.

    Args:
        x: Increasing, at least two.   # (n,)
        y: Values there.   # (n,)
        at: Where, within x.
    """
    step, slope = np.diff(x), np.diff(y) / np.diff(x)
    left = min(max(int(np.searchsorted(x, at, side="right")) - 1, 0), step.size - 1)
    begin, end = (_derivative(step, slope, left + side) for side in (0, 1))
    h, t = float(step[left]), (at - float(x[left])) / float(step[left])
    return float(
        y[left] * (1 + 2 * t) * (1 - t) ** 2
        + y[left + 1] * t * t * (3 - 2 * t)
        + h * begin * t * (1 - t) ** 2
        + h * end * t * t * (t - 1)
    )


def _derivative(step: np.ndarray, slope: np.ndarray, knot: int) -> float:
    """Return the derivative at a knot: 0 at a turn, else a harmonic mean; one-sided at both ends."""
    if slope.size == 1:
        return float(slope[0])
    if 0 < knot < slope.size:
        before, after = float(slope[knot - 1]), float(slope[knot])
        if before * after <= 0:
            return 0.0
        low, high = 2 * step[knot] + step[knot - 1], step[knot] + 2 * step[knot - 1]
        return float((low + high) / (low / before + high / after))
    near, next_ = (0, 1) if knot == 0 else (-1, -2)
    found = float(
        ((2 * step[near] + step[next_]) * slope[near] - step[near] * slope[next_])
        / (step[near] + step[next_])
    )
    if found * slope[near] <= 0:
        return 0.0
    turns = slope[near] * slope[next_] < 0
    return float(3 * slope[near]) if turns and abs(found) > 3 * abs(slope[near]) else found


def print_error(printed: float) -> float:
    """Return by how much a server's sum may be more or less than the six digits that it prints of it.

    Below a million that is nothing, where whole numbers are added up.
    """
    step = SIX_DIGITS * 10.0 ** math.floor(math.log10(printed)) if printed > 0 else 0.0
    return step / 2 if step > 1 else 0.0


class PrintedSum:
    """A server's running sum, estimated more finely than the six digits that the server prints.

    After a week at 100 requests/s a sum of microseconds moves in steps larger than what one window adds to
    it. So the sum is continued by what the buckets add, scaled to what they added so far, and kept within
    half a step of the printed number. While the steps are small, it is the printed number.

    Args:
        printed: The sum when the adapter was opened.
    """

    def __init__(self, printed: float) -> None:
        self.total = 0.0
        """The sum since opening; never falls."""
        self._reached = printed

    def add(self, printed: float, expected: float, *, reset: bool = False) -> None:
        """Add what is printed now.

        Args:
            printed: The server's sum.
            expected: By how much it should have grown by the buckets.
            reset: Whether the server began at 0 again.
        """
        start = 0.0 if reset else self._reached
        error = print_error(printed)
        reached = max(min(max(start + expected, printed - error), printed + error), start)
        self.total += reached - start
        self._reached = reached
