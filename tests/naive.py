"""Plain twins of the compiled kernels: slow, obvious, and equal in every result."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from tuner.envs.simulator.batcher import GOLDEN, Batching, Machine


@dataclass
class Request:
    """One request on its way."""

    number: int
    arrival: float
    noise: float
    overhead: float
    size: float


@dataclass
class Batch:
    """One batch in execution."""

    requests: list[Request]
    generation: int
    started: float
    remaining: float
    gap_share: float


@dataclass
class NaiveBatcher:
    """Twin of :mod:`tuner.envs.simulator.batcher`."""

    slots: int
    capacity: int = 1 << 16
    now: float = 0.0
    generation: int = 0
    busy_seconds: float = 0.0
    waited_seconds: float = 0.0
    queued: float = 0.0
    computed: float = 0.0
    taken: float = 0.0
    arrived: int = 0
    dropped: int = 0
    executions: list[tuple[int, float]] = field(default_factory=list)
    latency: dict[int, float] = field(default_factory=dict)
    queue: deque[Request] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.running: list[Batch | None] = [None] * self.slots

    def advance(
        self,
        batching: Batching,
        machine: Machine,
        arrivals: list[tuple[float, float, float, float]],
        until: float,
    ) -> None:
        """Let time pass; ``arrivals`` are (time, noise, overhead, size)."""
        coming = deque(arrivals)
        while True:
            self._dispatch(batching, machine)
            batches = [batch for batch in self.running if batch]
            demand = len(batches) * machine.threads + machine.background
            share = 1.0 if demand <= machine.cores else machine.cores / demand
            others = max(0.0, min(demand, machine.cores) - machine.threads)
            waiting = max(0.0, demand / machine.cores - 1.0)
            pace = share / (1.0 + machine.contention * others + machine.switching * waiting)
            first = min(batches, key=lambda batch: batch.remaining, default=None)
            finish = self.now + first.remaining / pace if first else math.inf
            arrival = coming[0][0] if coming else math.inf
            expiry = self._expiry(batching)
            event = min(finish, arrival, expiry)
            step = min(event, until) - self.now
            for batch in batches:
                batch.remaining = max(0.0, batch.remaining - step * pace)
            self.busy_seconds += step * len(batches) * machine.threads * share
            self.waited_seconds += step * len(batches) * machine.threads * (1.0 - share)
            self.now = min(event, until)
            if event > until:
                return
            if first and finish == event:
                self._complete(first)
            elif arrival == event:
                self._admit(*coming.popleft())

    def _idle(self, batching: Batching) -> bool:
        taken = sum(1 for batch in self.running if batch and batch.generation == self.generation)
        return taken < batching.instances and None in self.running

    def _expiry(self, batching: Batching) -> float:
        if not self.queue or not self._idle(batching):
            return math.inf
        return self.queue[0].arrival + batching.delay

    def _dispatch(self, batching: Batching, machine: Machine) -> None:
        while self.queue and self._idle(batching):
            if len(self.queue) < batching.max_batch and self.now < self.queue[0].arrival + batching.delay:
                return
            size = self._size(batching)
            requests = [self.queue.popleft() for _ in range(size)]
            largest = max(request.size for request in requests)
            work = machine.profile[len(requests)] * requests[0].noise * largest
            batch = Batch(
                requests, self.generation, self.now, machine.gap + work, machine.gap / (machine.gap + work)
            )
            self.running[self.running.index(None)] = batch
            self.taken = self.now

    def _size(self, batching: Batching) -> int:
        """How many go into the next batch; a closed one holds who was there when it was closed."""
        size, head = min(len(self.queue), batching.max_batch), self.queue[0]
        if batching.delay == 0 or (head.number * GOLDEN) % 1.0 >= batching.closing:
            return size
        when = max(head.arrival + batching.delay, self.taken)
        there = sum(request.arrival <= when for request in self.queue)
        return size if len(self.queue) - there >= batching.max_batch else min(there, size)

    def _complete(self, batch: Batch) -> None:
        executed = (self.now - batch.started) * (1.0 - batch.gap_share)
        for request in batch.requests:
            self.latency[request.number] = self.now - request.arrival + request.overhead
            self.queued += self.now - request.arrival - executed
        self.computed += executed * len(batch.requests)
        self.executions.append((len(batch.requests), executed))
        self.running[self.running.index(batch)] = None

    def _admit(self, time: float, noise: float, overhead: float, size: float) -> None:
        if len(self.queue) >= self.capacity:
            self.dropped += 1
            self.latency[self.arrived] = math.inf
        else:
            self.queue.append(Request(self.arrived, time, noise, overhead, size))
        self.arrived += 1
