"""The ideal that batch scheduling is measured against: batch size and goodput under perfectly even arrivals.

Symphony, section 4.2. N accelerators execute one model, batch after batch without a pause. A request waits
for the next batch to begin and then for its execution. If nobody coordinates the accelerators, the wait is
up to a whole execution: ``2 l(b) <= SLO`` (equation 1). If the batches begin ``l(b)/N`` after each other, a
request waits at most that long: ``(1 + 1/N) l(b) <= SLO`` (equation 2). Either way N accelerators answer
``N b / l(b)`` requests/s (equation 3).

Where we differ: of the batch sizes that satisfy the inequality the paper takes the largest; we take the one
with the highest throughput, which is the largest for every linear profile, but need not be in a table. The
paper writes ``<`` in the equations and rounds down in Table 4, which means ``<=``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tuner.profile import best_batch
from tuner.rounding import ROUNDING

__all__ = ["Ideal", "fewest_accelerators", "staggered", "uncoordinated"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ideal:
    """What can be reached at best."""

    batch: int
    """Requests per batch; 0 if not even one meets the SLO."""
    rate: float
    """Goodput of all accelerators, requests/s."""
    queueing: float
    """The longest a request waits before its execution begins, s."""


def staggered(latency: np.ndarray, slo: float, accelerators: int) -> Ideal:
    """Return the ideal of a central scheduler: executions begin evenly spread (equation 2).

    Args:
        latency: Execution latency per batch size.   # (B+1,) s; latency[0] unused
        slo: s.
        accelerators: N, at least 1.
    """
    if accelerators < 1:
        raise ValueError(f"`accelerators >= 1` must hold, but got {accelerators=}")
    batch = best_batch(latency, slo / (1 + 1 / accelerators))
    return _ideal(latency, batch, accelerators, wait=1 / accelerators)


def uncoordinated(latency: np.ndarray, slo: float, accelerators: int) -> Ideal:
    """Return the ideal when each accelerator is fed on its own (equation 1); arguments as above."""
    if accelerators < 1:
        raise ValueError(f"`accelerators >= 1` must hold, but got {accelerators=}")
    return _ideal(latency, best_batch(latency, slo / 2), accelerators, wait=1.0)


def fewest_accelerators(latency: np.ndarray, slo: float, rate: float) -> int:
    """Return the least N whose staggered goodput reaches a rate (equations 2 and 3).

    Args:
        latency: Execution latency per batch size.   # (B+1,) s; latency[0] unused
        slo: s.
        rate: Requests/s, at least 0.

    Raises:
        ValueError: No number of accelerators can: a single request takes the whole SLO.
    """
    if not slo > latency[1] * (1 + ROUNDING):
        raise ValueError(f"`slo > latency[1]` must hold, but got {slo=}, {latency[1]=}")
    if not 0 <= rate < math.inf:
        raise ValueError(f"`rate >= 0` must hold, but got {rate=}")
    enough = 1
    while staggered(latency, slo, enough).rate < rate:
        enough *= 2
    short = enough // 2  # goodput grows with N, so the least N lies in (short, enough]
    while enough - short > 1:
        middle = (short + enough) // 2
        if staggered(latency, slo, middle).rate < rate:
            short = middle
        else:
            enough = middle
    return enough


def _ideal(latency: np.ndarray, batch: int, accelerators: int, wait: float) -> Ideal:
    if batch == 0:
        return Ideal(batch=0, rate=0.0, queueing=0.0)
    execution = float(latency[batch])
    return Ideal(batch=batch, rate=accelerators * batch / execution, queueing=wait * execution)
