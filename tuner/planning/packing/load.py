"""Session loads: what is packed. A load is the rate of one session and what its batches cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tuner.profile import best_batch

__all__ = ["LoadArrays", "SessionLoad", "load_arrays"]


@dataclass(frozen=True, kw_only=True, eq=False)
class SessionLoad:
    """One session on one kind of accelerator, with the rate at which its requests come.

    Raises:
        ValueError: ``rate``, ``budget`` and ``memory`` must be finite, and not negative.
    """

    name: str
    latency: np.ndarray
    """Execution latency per batch size.   # (B+1,) s; latency[0] unused, never falling."""
    budget: float
    """s from the arrival of a request to the end of its batch."""
    rate: float
    """requests/s."""
    memory: float = 0.0
    """Bytes of its model on an accelerator."""

    def __post_init__(self) -> None:
        if not all(0 <= value < math.inf for value in (self.rate, self.budget, self.memory)):
            raise ValueError(f"`rate`, `budget` and `memory` must be finite and at least 0, but got {self}")

    @property
    def batch(self) -> int:
        """The best batch of an accelerator of its own: ``2 l(b) <= budget``; 0 if not even 1 is in time."""
        return best_batch(self.latency, self.budget / 2)

    @property
    def fits(self) -> bool:
        """Whether some duty cycle serves it in time: a request waits for it, at least ``l(1)`` long."""
        return self.batch > 0

    @property
    def peak(self) -> float:
        """Requests/s of an accelerator of its own; 0 if it is never in time."""
        return self.batch / float(self.latency[self.batch]) if self.batch else 0.0

    @property
    def best(self) -> float:
        """Requests/s of an accelerator that executes batches of the best size, whatever the budget."""
        sizes = np.arange(1, len(self.latency))
        return float((sizes / self.latency[1:]).max())


class LoadArrays(NamedTuple):
    """The loads as the packing reads them; the latencies of load i are ``latency[start[i]:start[i + 1]]``."""

    latency: np.ndarray  # (sum of B+1,) s
    start: np.ndarray  # (n+1,)
    budget: np.ndarray  # (n,) s
    rate: np.ndarray  # (n,) requests/s
    memory: np.ndarray  # (n,) bytes


def load_arrays(loads: Sequence[SessionLoad], rates: Sequence[float] | None = None) -> LoadArrays:
    """Return the arrays of loads, at other rates if they are given."""
    lengths = [len(load.latency) for load in loads]
    return LoadArrays(
        latency=np.concatenate([load.latency for load in loads]) if loads else np.empty(0),
        start=np.concatenate(([0], np.cumsum(np.array(lengths, np.int64)))).astype(np.int64),
        budget=np.array([load.budget for load in loads], float),
        rate=np.array([load.rate for load in loads] if rates is None else rates, float),
        memory=np.array([load.memory for load in loads], float),
    )
