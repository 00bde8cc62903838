"""The eager policy in plain Python: makes the same decisions as :mod:`tuner.scheduling.batching.eager`."""

from __future__ import annotations

import math
from collections import deque
from heapq import heappop, heappush

from tuner.experiments.benchmarks.rivals.plain import SLACK, PlainPolicy
from tuner.scheduling.cluster import ClusterSpec

__all__ = ["PlainEager"]


class PlainEager(PlainPolicy):
    """An accelerator takes at once the largest batch of the session with the earliest deadline.

    Args:
        spec: Sessions and accelerators, which must be of one kind.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        super().__init__(spec)
        self._waiting: list[deque[float]] = [deque() for _ in spec.sessions]  # arrivals, s
        # Heap of (deadline of the oldest request, session); what is out of date stays until it is met.
        self._oldest: list[tuple[float, int]] = []

    def arrive(self, session: int, now: float) -> None:
        """Take in a request."""
        queue = self._waiting[session]
        queue.append(now)
        if len(queue) == 1:
            heappush(self._oldest, (now + self.budgets[session], session))
        self._assign(now)

    def finish(self, accelerator: int, now: float) -> None:  # noqa: ARG002 - as believed
        """Look whether anything can be sent."""
        self._assign(now)

    def wake(self, now: float) -> None:
        """Drop what is past its deadline."""
        while (first := self._first()) is not None and first[0] <= now:
            self._waiting[first[1]].popleft()
            self._drop(first[1], 1, now)
            self._requeue(first[1])
        self._assign(now)

    def _assign(self, now: float) -> None:
        """Give batches to accelerators while there are both."""
        send_at = math.inf
        while (first := self._first()) is not None:
            deadline, session = first
            free = self._free[0][0]
            most = min(len(self._waiting[session]), len(self._latencies[session]) - 1)
            send_at = free - (self._control + self._data * most)
            if send_at > now:
                break
            size = self._batch(session, most, deadline, now, free)
            send_at = free - (self._control + self._data * size)
            if send_at > now:
                break
            send_at = math.inf
            if size:
                self._send(session, size, now)
            else:
                self._drop_hopeless(session, now, free)
        self.wake_at = max(min(first[0] if first is not None else math.inf, send_at), now)

    def _first(self) -> tuple[float, int] | None:
        """The earliest deadline that is up to date, and its session."""
        oldest = self._oldest
        while oldest:
            deadline, session = oldest[0]
            queue = self._waiting[session]
            if queue and queue[0] + self.budgets[session] == deadline:
                return oldest[0]
            heappop(oldest)
        return None

    def _batch(self, session: int, most: int, deadline: float, now: float, free: float) -> int:
        """The largest batch that ends by a deadline; 0 if not even one request can."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self._fits(session, middle, deadline, now, free):
                low = middle
            else:
                high = middle - 1
        return low

    def _send(self, session: int, size: int, now: float) -> None:
        end = self._occupy(session, size, now)
        queue, latest = self._waiting[session], end - self.budgets[session] - SLACK
        late = 0
        for _ in range(size):
            late += queue.popleft() < latest
        self._count(size, late)
        self._requeue(session)

    def _drop_hopeless(self, session: int, now: float, free: float) -> None:
        queue, budget = self._waiting[session], self.budgets[session]
        while queue and not self._fits(session, 1, queue[0] + budget, now, free):
            queue.popleft()
            self._drop(session, 1, now)
        self._requeue(session)

    def _requeue(self, session: int) -> None:
        queue = self._waiting[session]
        if queue:
            heappush(self._oldest, (queue[0] + self.budgets[session], session))
