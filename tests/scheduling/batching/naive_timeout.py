"""Plain twin of `timeout`, and the plain cluster that twins share which send to idle accelerators."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

from tuner.scheduling.batching.timeout import TimeoutOptions
from tuner.scheduling.cluster import ClusterSpec
from tuner.scheduling.vocabulary import DISPATCH
from tuner.testing.driver import PolicyRun

Answer = tuple[float, str, int, tuple[int, ...], int, float]
"""When, "batch" or "drop", session, requests, accelerator, start."""


def answers(trace: PolicyRun) -> list[Answer]:
    """What a compiled policy did, in the twins' words."""
    return [
        (now, "batch" if c.kind == DISPATCH else "drop", c.session, c.numbers, c.accelerator, c.start)
        for now, c in trace.commands
    ]


@dataclass
class Request:
    """One that waits."""

    number: int
    arrival: float


class NaiveCluster:
    """Everything in lists, searched again at every event; a subclass says what to send."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.now = 0.0
        self.queues: list[list[Request]] = [[] for _ in spec.sessions]
        self.busy: dict[int, tuple[float, int, int, float]] = {}  # end, session, size, sent
        self.answers: list[Answer] = []

    def run(self, arrivals: list[tuple[float, int, int]]) -> list[Answer]:
        coming = [(time, session, number) for number, (time, session, _) in enumerate(arrivals)]
        while True:
            ends = [(entry[0], accelerator) for accelerator, entry in self.busy.items()]
            end, accelerator = min(ends, default=(math.inf, -1))
            arrival = coming[0][0] if coming else math.inf
            alarm = min((time for time in self.alarms() if time > self.now), default=math.inf)
            if min(end, arrival, alarm) == math.inf:
                return self.answers
            self.now = min(end, arrival, alarm)
            if end == self.now:
                _, session, size, sent = self.busy.pop(accelerator)
                self.ended(accelerator, session, size, self.now - sent)
            elif arrival == self.now:
                _, session, number = coming.pop(0)
                self.admit(session, Request(number, arrival))
            self.settle()

    def idle(self) -> list[int]:
        return [a for a in range(len(self.spec.kinds)) if a not in self.busy]

    def deadline(self, session: int, request: Request) -> float:
        return request.arrival + (self.spec.sessions[session].slo - self.spec.delays.response)

    def send(self, session: int, size: int, accelerator: int) -> None:
        delays = self.spec.delays
        start = self.now + delays.control + delays.data * size
        end = start + self.latency(session, size, accelerator)
        self.busy[accelerator] = (end, session, size, self.now)
        self.answers.append((self.now, "batch", session, self.take(session, size), accelerator, start))

    def drop(self, session: int, size: int) -> None:
        self.answers.append((self.now, "drop", session, self.take(session, size), -1, 0.0))

    def take(self, session: int, size: int) -> tuple[int, ...]:
        taken, self.queues[session] = self.queues[session][:size], self.queues[session][size:]
        return tuple(request.number for request in taken)

    def late(self, session: int) -> int:
        return sum(self.deadline(session, request) <= self.now for request in self.queues[session])

    def latency(self, session: int, size: int, accelerator: int) -> float:
        return float(self.spec.sessions[session].latency[self.spec.kinds[accelerator], size])

    def admit(self, session: int, request: Request) -> None:
        self.queues[session].append(request)

    def alarms(self) -> list[float]:
        return []

    def ended(self, accelerator: int, session: int, size: int, took: float) -> None:
        pass

    def settle(self) -> None:
        raise NotImplementedError


class NaiveTimeout(NaiveCluster):
    """Twin of :mod:`tuner.scheduling.batching.timeout`, with options that hold for all sessions."""

    def __init__(self, spec: ClusterSpec, options: TimeoutOptions) -> None:
        super().__init__(spec)
        self.options = cast(Any, options)  # plain values, no tuples
        self.instances: int = self.options.instances or len(spec.kinds)

    def largest(self, session: int) -> int:
        rows = self.spec.sessions[session].latency.shape[1] - 1
        limits = [rows, self.options.max_batch or rows, *self.options.allowed[-1:]]
        return int(min(limits))

    def latency(self, session: int, size: int, accelerator: int) -> float:
        padded = min((a for a in self.options.allowed if a >= size), default=size)
        return super().latency(session, padded, accelerator)

    def admit(self, session: int, request: Request) -> None:
        by_requests = self.options.max_enqueued or math.inf
        by_batches = self.options.max_enqueued_batches * self.largest(session) or math.inf
        if len(self.queues[session]) >= min(by_requests, by_batches):
            self.answers.append((self.now, "drop", session, (request.number,), -1, 0.0))
        else:
            super().admit(session, request)

    def alarms(self) -> list[float]:
        heads = [(session, queue[0]) for session, queue in enumerate(self.queues) if queue]
        ripe = [request.arrival + self.options.delay for _, request in heads]
        expiry = [self.deadline(*head) for head in heads] if self.options.drop_expired else []
        return ripe + expiry

    def settle(self) -> None:
        while self.options.drop_expired and any(map(self.late, range(len(self.queues)))):
            waiting = [(self.deadline(s, queue[0]), s) for s, queue in enumerate(self.queues) if queue]
            session = min(waiting)[1]
            self.drop(session, self.late(session))
        while self.idle():
            sizes = {session: self.size(session) for session in range(len(self.queues))}
            ready = [(self.queues[session][0].arrival, session) for session, size in sizes.items() if size]
            if not ready:
                return
            session = min(ready)[1]
            self.send(session, sizes[session], self.idle()[0])

    def size(self, session: int) -> int:
        queue, delay = self.queues[session], self.options.delay
        running = sum(entry[1] == session for entry in self.busy.values())
        if not queue or running >= self.instances:
            return 0
        count = min(len(queue), self.largest(session))
        largest = self.largest(session)
        fitting = [size for size in self.options.preferred if size <= largest] or [largest]
        best = max((size for size in fitting if size <= count), default=0)
        ripe = queue[0].arrival + delay <= self.now
        if best and not (ripe and delay > 0):
            return best
        return count if ripe else 0
