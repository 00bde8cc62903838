"""A virtual-time engine in plain Python: a heap of ends, deques, no arrays and no compilation.

A rival in the benchmarks, written as one would write it for speed in Python. It counts good, late and dropped
requests, and nothing else. The tests' twins of the policies are other ones: written to be seen to be right,
they search lists from the start at every event, and would be poor rivals.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from tuner.scheduling.cluster import ClusterSpec
from tuner.scheduling.vocabulary import TOLERANCE

__all__ = ["DROPPED", "SLACK", "PlainPolicy", "Tally", "simulate_plain"]

DROPPED = -1
"""Stands for the accelerator of requests that are dropped."""
SLACK = 1e-9
"""s by which an answer may miss its deadline through rounding and still be good."""


@dataclass(slots=True)
class Tally:
    """What became of the requests."""

    good: int = 0
    late: int = 0
    dropped: int = 0
    batches: int = 0


class PlainPolicy(ABC):
    """A scheduling policy in plain Python.

    Life: `arrive`, `finish` and `wake` are called at events; `commands` then holds what is to be done, as
    (accelerator or DROPPED, end, session, number of its oldest requests), to be taken out by the caller.
    `wake_at` is when `wake` wants to be called.

    Args:
        spec: Sessions and accelerators, which must be of one kind.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        kind, delays = spec.kinds[0], spec.delays
        assert set(spec.kinds) == {kind}, spec.kinds
        self.commands: list[tuple[int, float, int, int]] = []
        self.tally = Tally()
        self.wake_at = math.inf
        self.budgets = [session.slo - delays.response for session in spec.sessions]
        """From a request's arrival to the end of its execution at the latest, by session, s."""
        self._latencies: list[list[float]] = [session.latency[kind].tolist() for session in spec.sessions]
        self._control, self._data = delays.control, delays.data
        self._free = [(0.0, accelerator) for accelerator in range(len(spec.kinds))]  # heap

    @abstractmethod
    def arrive(self, session: int, now: float) -> None:
        """A request of a session arrived."""

    @abstractmethod
    def finish(self, accelerator: int, now: float) -> None:
        """The oldest batch of an accelerator has ended."""

    @abstractmethod
    def wake(self, now: float) -> None:
        """The time `wake_at` has come."""

    def _fits(self, session: int, size: int, latest: float, now: float, free: float) -> bool:
        """Return whether a batch ends in time on an accelerator that is free from a time on."""
        start = max(now + (self._control + self._data * size), free)
        return start + self._latencies[session][size] <= latest + TOLERANCE

    def _occupy(self, session: int, size: int, now: float) -> float:
        """Send a batch to the accelerator that is free first; return when it ends."""
        free, accelerator = heappop(self._free)
        end = max(now + (self._control + self._data * size), free) + self._latencies[session][size]
        heappush(self._free, (end, accelerator))
        self.commands.append((accelerator, end, session, size))
        return end

    def _count(self, size: int, late: int) -> None:
        """Count a batch that was sent."""
        self.tally.late += late
        self.tally.good += size - late
        self.tally.batches += 1

    def _drop(self, session: int, count: int, now: float) -> None:
        """Drop the oldest requests of a session."""
        self.tally.dropped += count
        self.commands.append((DROPPED, now, session, count))


def simulate_plain(policy: PlainPolicy, times: Sequence[float], sessions: Iterable[int]) -> Tally:
    """Drive a policy with all arrivals, and what happens up to the last of them; return its tally.

    Args:
        policy: At its beginning; modified in place.
        times: Arrivals in order, s.
        sessions: Of each arrival.
    """
    ends: list[tuple[float, int]] = []  # heap of (end of a batch, accelerator)
    for arrival, session in zip(times, sessions, strict=True):
        while True:
            end, timer = ends[0][0] if ends else math.inf, policy.wake_at
            if arrival < end and arrival <= timer:
                break
            if end <= timer:
                policy.finish(heappop(ends)[1], end)
            else:
                policy.wake(timer)
            _note(policy, ends)
        policy.arrive(session, arrival)
        _note(policy, ends)
    return policy.tally


def _note(policy: PlainPolicy, ends: list[tuple[float, int]]) -> None:
    """Note when what was sent ends; both are modified in place."""
    commands = policy.commands
    if commands:
        for accelerator, end, _, _ in commands:
            if accelerator != DROPPED:
                heappush(ends, (end, accelerator))
        commands.clear()
