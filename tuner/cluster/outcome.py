"""The result of a simulated cluster in plain Python: per session answers, latencies and batches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tuner.cluster.statistics import Totals, edges, median, quantile
from tuner.measurement import known
from tuner.scheduling.cluster import SessionSpec

__all__ = ["Outcome", "SessionOutcome", "make_session_outcome", "within"]

ROUNDING = 1e-12
"""What a quantile loses in ``1 - quantile``; far less than one of many requests."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionOutcome:
    """What happened to the requests of one session that count.

    Latencies are those of answered requests, good and late; dropped requests have none. They are counted in
    bins of less than 1 % width. A statistic of no requests is NaN.
    """

    name: str
    slo: float
    """s"""
    quantile: float
    """Share of the requests that must be answered within the SLO."""
    seconds: float
    """Measured, s."""
    good: int
    """Answered within the slo."""
    late: int
    """Answered after it."""
    dropped: int
    """Refused."""
    mean_latency: float
    """s"""
    mean_queueing: float
    """Mean time from arrival to the start of the execution, s."""
    max_queueing: float
    """The longest such time, s; 0 if no request was executed."""
    latencies: np.ndarray = field(repr=False, compare=False)
    """Answered requests per bin of latency.   # (BINS,)."""
    batches: np.ndarray = field(repr=False, compare=False)
    """Batches per size.   # (B+1,)."""
    served: np.ndarray = field(repr=False, compare=False)
    """Answered requests per kind of accelerator.   # (K,)."""

    @property
    def requests(self) -> int:
        """All requests that count."""
        return self.good + self.late + self.dropped

    @property
    def bad_rate(self) -> float:
        """Share that is late or dropped; 0 if there were no requests."""
        return (self.late + self.dropped) / self.requests if self.requests else 0.0

    @property
    def kept(self) -> bool:
        """Whether no more requests are late or dropped than the quantile allows."""
        return within(self.bad_rate, 1 - self.quantile)

    @property
    def rate(self) -> float:
        """Requests per second offered."""
        return self.requests / self.seconds

    @property
    def good_rate(self) -> float:
        """Good answers per second."""
        return self.good / self.seconds

    @property
    def mean_batch(self) -> float:
        """Requests per batch."""
        batches = int(self.batches.sum())
        return float(np.arange(self.batches.size) @ self.batches) / batches if batches else math.nan

    @property
    def median_batch(self) -> float:
        """Median size of the batches, each batch counted once (not once per request)."""
        return median(self.batches)

    def latency(self, share: float) -> float:
        """Return the latency that a share of the answered requests stays within, s."""
        return quantile(self.latencies, share)

    def distribution(self) -> tuple[np.ndarray, np.ndarray]:
        """Return upper ends of the bins of latency, s, and the share of requests below.   # 2 x (BINS,)."""
        below = np.cumsum(self.latencies)
        return edges()[1:], below / max(int(below[-1]), 1)

    def to_json(self) -> dict[str, Any]:
        """Return the row of ``tuner simulate --json``."""
        return {
            "name": self.name,
            "requests": self.requests,
            "good": self.good,
            "dropped": self.dropped,
            "late": self.late,
            "p50_ms": known(self.latency(0.50) * 1e3),
            "p95_ms": known(self.latency(0.95) * 1e3),
            "p99_ms": known(self.latency(0.99) * 1e3),
            "mean_batch": known(self.mean_batch),
            "median_batch": known(self.median_batch),
            "max_queueing_ms": self.max_queueing * 1e3,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What happened in the measured part of a simulation."""

    sessions: tuple[SessionOutcome, ...]
    utilisation: tuple[float, ...]
    """Share of the measured time that each accelerator executed."""
    seconds: float
    """Measured, s."""

    @property
    def requests(self) -> int:
        """All requests that count."""
        return sum(session.requests for session in self.sessions)

    @property
    def bad_rate(self) -> float:
        """Share of all requests that is late or dropped; 0 if there were none."""
        bad = sum(session.late + session.dropped for session in self.sessions)
        return bad / self.requests if self.requests else 0.0

    @property
    def worst_bad_rate(self) -> float:
        """The bad rate of the session where it is highest."""
        return max(session.bad_rate for session in self.sessions)

    @property
    def kept(self) -> bool:
        """Whether every session keeps its quantile."""
        return all(session.kept for session in self.sessions)

    @property
    def rate(self) -> float:
        """Requests per second offered."""
        return self.requests / self.seconds

    @property
    def good_rate(self) -> float:
        """Good answers per second."""
        return sum(session.good for session in self.sessions) / self.seconds

    @property
    def mean_utilisation(self) -> float:
        """Share of the measured time that an accelerator executed, on average."""
        return sum(self.utilisation) / len(self.utilisation)

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``tuner simulate --json``."""
        return {
            "sessions": [session.to_json() for session in self.sessions],
            "utilisation": list(self.utilisation),
            "bad_rate": self.bad_rate,
        }


def make_session_outcome(totals: Totals, index: int, session: SessionSpec, seconds: float) -> SessionOutcome:
    """Return a copy of what was counted for one session.

    Args:
        totals: The counts.
        index: Of the session in them.
        session: Its name, SLO and quantile.
        seconds: Measured, s.
    """
    tally = totals.sessions[index]
    good, late = int(tally["good"]), int(tally["late"])
    answered = good + late
    return SessionOutcome(
        name=session.name,
        slo=session.slo,
        quantile=session.quantile,
        seconds=seconds,
        good=good,
        late=late,
        dropped=int(tally["dropped"]),
        mean_latency=float(tally["latency"]) / answered if answered else math.nan,
        mean_queueing=max(0.0, float(tally["queueing"]) / answered) if answered else math.nan,
        max_queueing=float(tally["longest"]),
        latencies=totals.latencies[index].copy(),
        batches=totals.batches[index].copy(),
        served=totals.served[index].copy(),
    )


def within(bad_rate: float, allowed: float) -> bool:
    """Whether a share of late or dropped requests is at most the allowed one, but for rounding."""
    return bad_rate <= allowed + ROUNDING
