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
    """

    def __init__(self) -> None:
        self.commands: list[tuple[int, float, int, int]] = []
        self.tally = Tally()
        self.wake_at = math.inf

    @abstractmethod
    def budget(self, session: int) -> float:
        """Return the time from a request's arrival to the end of its execution at the latest, s."""

    @abstractmethod
    def arrive(self, session: int, now: float) -> None:
        """A request of a session arrived."""

    @abstractmethod
    def finish(self, accelerator: int, now: float) -> None:
        """The oldest batch of an accelerator has ended."""

    @abstractmethod
    def wake(self, now: float) -> None:
        """The time `wake_at` has come."""


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
