"""The symphony policy in plain Python: the defaults of `batching.symphony`, equal accelerators.

It takes for granted that every batch ends when it is believed to, as it does in the benchmarks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from heapq import heappop, heappush

from tuner.experiments.benchmarks.rivals.plain import SLACK, PlainPolicy
from tuner.scheduling.batching.candidate import LOOK, NOTICEABLE, WINDOW
from tuner.scheduling.batching.symphony import GRACE
from tuner.scheduling.cluster import ClusterSpec
from tuner.scheduling.vocabulary import TOLERANCE

__all__ = ["PlainSymphony"]

TRIM = 4096
"""Requests that are done with are kept in a session's list up to this many."""


@dataclass(slots=True)
class _Session:
    """A session and its candidate."""

    number: int
    slo: float
    latency: list[float]
    """s per batch size; [0] unused."""
    largest: int
    target: int = 0
    arrivals: list[float] = field(default_factory=list)
    """s; from `head` on they wait."""
    head: int = 0
    suffix: int = 0
    """From there on all that wait could be one batch."""
    planned: int = 0
    """Requests of the batch that would be sent now."""
    timer: float = math.inf
    place: float = math.inf
    """In the dispatch order; infinite if not schedulable."""
    rate: float = 0.0
    look_at: float = 0.0
    began: float = -1.0
    count: int = 0
    before: int = -1


class PlainSymphony(PlainPolicy):
    """A batch is sent when it can take in no further request.

    Args:
        spec: Sessions and accelerators, which must be of one kind.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        super().__init__(spec)
        self._timers: list[tuple[float, int]] = []  # heap of (time, session); some out of date
        self._ready: list[tuple[float, int]] = []  # heap of (place, session); some out of date
        self._sessions = [
            _Session(number=number, slo=session.slo, latency=latency, largest=len(latency) - 1)
            for number, (session, latency) in enumerate(zip(spec.sessions, self._latencies, strict=True))
        ]
        for one in self._sessions:
            one.target = self._target(one)

    def arrive(self, session: int, now: float) -> None:
        """Take in a request."""
        one = self._sessions[session]
        one.arrivals.append(now)
        self._count_arrival(one, now)
        if (
            one.planned + 1 == len(one.arrivals) - one.head
            and 0 < one.planned < one.largest
            and now < one.timer
            and one.place == math.inf
        ):
            one.planned += 1
        else:
            self._form(one, now, -math.inf)
        self._enlist(one, now)
        self._settle(now)

    def finish(self, accelerator: int, now: float) -> None:  # noqa: ARG002 - as believed
        """Look whether anything can be sent."""
        self._settle(now)

    def wake(self, now: float) -> None:
        """Look at the candidates whose time has come."""
        while (timer := self._first_timer()) <= now:
            one = self._sessions[heappop(self._timers)[1]]
            assert one.timer == timer, (one.timer, timer)
            self._form(one, now, -math.inf)
            self._enlist(one, now)
        self._settle(now)

    def _settle(self, now: float) -> None:
        """Send schedulable candidates while there are accelerators for them."""
        send_at = math.inf
        while (one := self._first_ready()) is not None:
            free, _ = self._free[0]
            send_at = free - (self._control + self._data * one.planned)
            if send_at > now:
                break
            send_at = math.inf
            if self._fits(
                one.number, one.planned, one.arrivals[one.head] + self.budgets[one.number], now, free
            ):
                self._send(one, now)
                free = -math.inf
            self._form(one, now, free)
            self._enlist(one, now)
        self.wake_at = max(min(self._first_timer(), send_at), now)

    def _first_timer(self) -> float:
        timers = self._timers
        while timers and self._sessions[timers[0][1]].timer != timers[0][0]:
            heappop(timers)
        return timers[0][0] if timers else math.inf

    def _first_ready(self) -> _Session | None:
        ready = self._ready
        while ready:
            one = self._sessions[ready[0][1]]
            if one.place == ready[0][0]:
                return one
            heappop(ready)
        return None

    def _form(self, one: _Session, now: float, free: float) -> None:
        """Form the batch again; drop the requests that would make it late."""
        arrivals, budget, tail = one.arrivals, self.budgets[one.number], len(one.arrivals)
        keep, suffix = one.head, max(one.suffix, one.head, tail - one.largest)
        while suffix < tail and not self._fits(
            one.number, tail - suffix, arrivals[suffix] + budget, now, free
        ):
            suffix += 1
        count = min(tail - suffix, one.target, one.largest)
        if count == 0:
            keep = tail
        while keep < suffix and not self._fits(one.number, count, arrivals[keep] + budget, now, free):
            keep += 1
        if keep == suffix:
            count = min(tail - keep, one.largest)
        else:
            latest = arrivals[keep] + budget if keep < tail else 0.0
            most = min(tail - keep, one.largest)
            while count < most and self._fits(one.number, count + 1, latest, now, free):
                count += 1
        one.suffix, one.planned = max(suffix, keep), count
        if keep > one.head:
            self._drop(one.number, keep - one.head, now)
        one.head = keep
        self._trim(one)

    def _enlist(self, one: _Session, now: float) -> None:
        """Set when the candidate becomes schedulable, or put it among those that are."""
        planned = one.planned
        one.timer = one.place = math.inf
        if planned == 0:
            return
        must_end = one.arrivals[one.head] + self.budgets[one.number]
        latest = must_end - one.latency[planned] - (self._control + self._data * planned)
        sched_at = latest
        if planned < one.largest:
            sched_at = must_end - one.latency[planned + 1] - (self._control + self._data * (planned + 1))
            if sched_at > now:
                one.timer = sched_at
                heappush(self._timers, (sched_at, one.number))
                return
        one.timer = max(latest, now - TOLERANCE) + GRACE
        one.place = sched_at
        heappush(self._timers, (one.timer, one.number))
        heappush(self._ready, (sched_at, one.number))

    def _send(self, one: _Session, now: float) -> None:
        size = one.planned
        end = self._occupy(one.number, size, now)
        latest = end - self.budgets[one.number] - SLACK
        batch = one.arrivals[one.head : one.head + size]
        late = sum(arrival < latest for arrival in batch) if batch[0] < latest else 0
        one.head += size
        self._count(size, late)

    def _trim(self, one: _Session) -> None:
        if one.head > TRIM:
            del one.arrivals[: one.head]
            one.suffix -= one.head
            one.head = 0

    def _target(self, one: _Session) -> int:
        budget, each = one.slo / 2, 0.0
        if one.rate > 0:
            budget, each = self.budgets[one.number] - self._control, self._data + 1 / one.rate
        count = 1
        while count < one.largest and one.latency[count + 1] + (count + 1) * each <= budget:
            count += 1
        return count

    def _count_arrival(self, one: _Session, now: float) -> None:
        one.count += 1
        if now >= one.look_at:
            rate = self._look(one, now)
            if abs(rate - one.rate) > NOTICEABLE * one.rate:
                one.rate = rate
                one.target = self._target(one)

    def _look(self, one: _Session, now: float) -> float:
        """The request rate, 1/s."""
        if one.began < 0:
            one.began, one.count = now, 0
        elif now >= one.began + WINDOW:
            idle = now >= one.began + 2 * WINDOW
            one.before = 0 if idle else one.count - 1
            one.count = 1
            one.began = now if idle else one.began + WINDOW
        passed = now - one.began
        one.look_at = min(now + LOOK, one.began + WINDOW)
        if one.before >= 0:
            return (one.before * (1 - passed / WINDOW) + one.count) / WINDOW
        return one.count / passed if passed > 0 else 0.0
