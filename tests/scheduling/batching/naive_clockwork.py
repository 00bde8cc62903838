"""Plain twin of Clockwork: a list of requests per kind, session and batch size, searched again every time."""

from __future__ import annotations

from dataclasses import dataclass

from tests.scheduling.twin import Given
from tuner.scheduling.batching.clockwork import ClockworkOptions
from tuner.scheduling.cluster import ClusterSpec
from tuner.scheduling.vocabulary import DISPATCH, DROP, NEVER, TOLERANCE

__all__ = ["NaiveClockwork"]


@dataclass
class Sent:
    """A batch that has not ended."""

    session: int
    size: int
    start: float
    execution: float


class NaiveClockwork:
    """Twin of :mod:`tuner.scheduling.batching.clockwork`."""

    def __init__(self, spec: ClusterSpec, options: ClockworkOptions, depth: int) -> None:
        self.spec, self.options, self.depth = spec, options, depth
        self.commands: list[Given] = []
        self.wake_at = NEVER
        self.free = [0.0] * len(spec.kinds)
        self.ended = [0.0] * len(spec.kinds)
        self.sent: list[list[Sent]] = [[] for _ in spec.kinds]
        self.alive: list[list[tuple[float, int]]] = [[] for _ in spec.sessions]
        self.queues: dict[tuple[int, int, int], list[tuple[float, int]]] = {}
        self.runs: dict[tuple[int, int, int], list[float]] = {}
        self.estimate: dict[tuple[int, int, int], float] = {}
        for kind in set(spec.kinds):
            for session, each in enumerate(spec.sessions):
                for size in range(1, each.latency.shape[1]):
                    if options.sizes == "all" or size in (1, 2, 4, 8, 16):
                        self.queues[kind, session, size] = []
                        self.runs[kind, session, size] = []
                        self.estimate[kind, session, size] = float(each.latency[kind, size])

    def arrive(self, session: int, source: int, number: int, now: float) -> None:
        self.alive[session].append((now, number))
        for (_, owner, _), queue in self.queues.items():
            if owner == session:
                queue.append((now, number))
        self.schedule(now)

    def finish(self, accelerator: int, now: float) -> None:
        batch = self.sent[accelerator].pop(0)
        if self.options.estimate == "measured":
            self.learn(accelerator, batch, now - max(batch.start, self.ended[accelerator]))
        self.ended[accelerator] = self.free[accelerator] = now
        for other in self.sent[accelerator]:
            self.free[accelerator] = max(self.free[accelerator], other.start) + other.execution
        self.schedule(now)

    def learn(self, accelerator: int, batch: Sent, execution: float) -> None:
        if execution <= self.budget(batch.session):
            name = self.spec.kinds[accelerator], batch.session, batch.size
            self.runs[name].append(execution)
            self.estimate[name] = max(self.runs[name][-10:])

    def wake(self, now: float) -> None:
        assert now == self.wake_at
        self.schedule(now)

    def schedule(self, now: float) -> None:
        while True:
            able = [
                (self.free[a], kind, a)
                for a, kind in enumerate(self.spec.kinds)
                if self.strategies(kind) and len(self.sent[a]) < self.depth
            ]
            taking = [each for each in able if each[0] - self.options.schedule_ahead <= now]
            if not taking:
                break
            _, kind, accelerator = min(taking)
            _, session, size = min(self.strategies(kind))
            if self.expire(accelerator, session, size, now):
                self.drop_lost(session)
            else:
                self.send(accelerator, session, self.enlarge(accelerator, session, size, now), now)
        self.wake_at = min((free - self.options.schedule_ahead for free, _, _ in able), default=NEVER)

    def strategies(self, kind: int) -> list[tuple[float, int, int]]:
        """Priority, session and size of each queue that holds a batch."""
        return [
            (queue[0][0] + self.budget(session) - self.estimate[owner, session, size], session, size)
            for (owner, session, size), queue in self.queues.items()
            if owner == kind and len(queue) >= size
        ]

    def expire(self, accelerator: int, session: int, size: int, now: float) -> bool:
        kind = self.spec.kinds[accelerator]
        end = self.start(accelerator, size, now) + self.estimate[kind, session, size]
        budget = self.budget(session)
        late = [r for r in self.queues[kind, session, size] if r[0] + budget + TOLERANCE < end]
        for (owner, each, other), queue in self.queues.items():
            if (owner, each) == (kind, session) and other >= size:
                queue[:] = [request for request in queue if request not in late]
        return bool(late)

    def enlarge(self, accelerator: int, session: int, size: int, now: float) -> int:
        kind = self.spec.kinds[accelerator]
        able = [other for _, each, other in self.strategies(kind) if each == session and other > size]
        for other in sorted(able, reverse=True):
            self.expire(accelerator, session, other, now)
            if len(self.queues[kind, session, other]) >= other:
                return other
        return size

    def send(self, accelerator: int, session: int, size: int, now: float) -> None:
        kind = self.spec.kinds[accelerator]
        batch = self.queues[kind, session, size][:size]
        start = self.start(accelerator, size, now)
        execution = self.estimate[kind, session, size]
        numbers = tuple(number for _, number in batch)
        self.commands.append(Given(DISPATCH, session, numbers, accelerator, start, start + execution))
        self.free[accelerator] = start + execution
        self.sent[accelerator].append(Sent(session, size, start, execution))
        self.alive[session] = [request for request in self.alive[session] if request not in batch]
        for (_, owner, _), queue in self.queues.items():
            if owner == session:
                queue[:] = [request for request in queue if request not in batch]

    def drop_lost(self, session: int) -> None:
        waits = [r for (_, owner, _), queue in self.queues.items() if owner == session for r in queue]
        lost = [request for request in self.alive[session] if request not in waits]
        if lost:
            numbers = tuple(number for _, number in lost)
            self.commands.append(Given(DROP, session, numbers, -1, 0.0, 0.0))
            self.alive[session] = [request for request in self.alive[session] if request in waits]

    def start(self, accelerator: int, size: int, now: float) -> float:
        delays = self.spec.delays
        return max(self.free[accelerator], now + delays.control + delays.data * size)

    def budget(self, session: int) -> float:
        slo = self.spec.sessions[session].slo
        return min(slo - self.spec.delays.response, slo - self.options.margin)
