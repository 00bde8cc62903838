"""Plain twins of the request distribution policies: slow, written like the paper.

Only the matching and the predictor are the compiled ones, which have tests of their own: of equal costs both
must choose alike. Kairos' twin believes the profile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from tests.scheduling.twin import Given
from tuner.scheduling.cluster import ClusterSpec
from tuner.scheduling.distribution.matching import make_matching, match
from tuner.scheduling.distribution.predictor import learn, make_predictor, predict
from tuner.scheduling.vocabulary import DISPATCH, DROP, TOLERANCE


@dataclass
class Request:
    session: int
    number: int
    arrival: float
    items: int


class Base:
    """What all of them have: requests that wait, and instances that execute one at a time."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.waiting: list[Request] = []
        self.free_at: dict[int, float] = {}  # of those that execute
        self.commands: list[Given] = []
        self.wake_at = math.inf
        self.items = 1
        self.now = 0.0
        self.travel = spec.delays.control + spec.delays.data

    def latency(self, instance: int, request: Request) -> float:
        return float(self.spec.sessions[request.session].latency[self.spec.kinds[instance], request.items])

    def budget(self, session: int) -> float:
        return self.spec.sessions[session].slo - self.spec.delays.response

    def largest(self, instance: int, session: int) -> float:
        """How long the largest request takes, s."""
        return float(self.spec.sessions[session].latency[self.spec.kinds[instance], -1])

    @property
    def idle(self) -> list[int]:
        return [i for i in range(len(self.spec.kinds)) if i not in self.free_at]

    @property
    def fastest_first(self) -> list[int]:
        return sorted(self.idle, key=lambda instance: (self.largest(instance, 0), instance))

    def base(self, session: int) -> list[int]:
        """The instances that keep the SLO at the largest size, with the way there; else the fastest."""
        times = {i: self.largest(i, session) for i in range(len(self.spec.kinds))}
        kept = [i for i, time in times.items() if time + self.travel <= self.budget(session) + TOLERANCE]
        return kept or [i for i, time in times.items() if time == min(times.values())]

    def send(self, request: Request, instance: int) -> None:
        start = self.now + self.travel
        end = start + self.latency(instance, request)
        self.free_at[instance] = end
        self.commands.append(Given(DISPATCH, request.session, (request.number,), instance, start, end))

    def arrive(self, session: int, source: int, number: int, now: float) -> None:
        self.now = now
        self.waiting.append(Request(session, number, now, self.items))
        self.wake_at = now if self.idle else self.wake_at

    def finish(self, instance: int, now: float) -> None:
        self.now = now
        del self.free_at[instance]
        self.wake_at = now if self.waiting else math.inf

    def wake(self, now: float) -> None:
        self.now, self.wake_at = now, math.inf
        self.assign()

    def assign(self) -> None:
        raise NotImplementedError


class Kairos(Base):
    guard, penalty, refuse = 0.98, 10.0, False

    def look(self) -> list[Request]:
        """The oldest requests, twice as many as instances."""
        order = sorted(self.waiting, key=lambda request: (request.arrival, request.session))
        return order[: 2 * len(self.spec.kinds)]

    def refuse_lost(self) -> bool:
        """Refuse those looked at that are lost; whether there were any, and others may be looked at now."""
        before = len(self.waiting)
        for request in self.look():
            kinds = range(max(self.spec.kinds) + 1)
            least = min(
                float(self.spec.sessions[request.session].latency[kind, request.items]) for kind in kinds
            )
            if self.now - request.arrival + self.travel + least > self.budget(request.session) + TOLERANCE:
                self.waiting.remove(request)
                self.commands.append(Given(DROP, request.session, (request.number,)))
        return len(self.waiting) < before

    def assign(self) -> None:
        if not self.idle or not self.waiting:
            return
        if self.refuse:
            while self.refuse_lost():
                pass
        instances = range(len(self.spec.kinds))
        looked_at = self.look()
        if not looked_at:
            return
        cost = np.array([[self.cost(request, instance) for instance in instances] for request in looked_at])
        wide = len(looked_at) > len(instances)
        work = make_matching(min(cost.shape), max(cost.shape))
        work.cost[...] = cost.T if wide else cost
        match(work, *work.cost.shape)
        mates = work.owner if wide else work.mate
        idle = self.idle
        for request, instance in zip(looked_at, mates.tolist(), strict=False):
            if instance in idle:
                self.send(request, instance)
                self.waiting.remove(request)

    def cost(self, request: Request, instance: int) -> float:
        """Eq. 2 and 8."""
        target = self.budget(request.session)
        left = self.travel + max(self.free_at.get(instance, 0.0) - self.now, 0.0)
        length = left + self.latency(instance, request)
        if length > self.guard * target - (self.now - request.arrival):
            length = self.penalty * target
        kinds = range(max(self.spec.kinds) + 1)
        largest = [float(self.spec.sessions[request.session].latency[kind, -1]) for kind in kinds]
        return min(largest) / largest[self.spec.kinds[instance]] * length


class Ribbon(Base):
    def assign(self) -> None:
        for instance in self.fastest_first:
            if self.waiting:
                request = min(self.waiting, key=lambda request: (request.arrival, request.session))
                self.waiting.remove(request)
                self.send(request, instance)


class Drs(Base):
    threshold = 3

    def assign(self) -> None:
        for instance in self.fastest_first:
            fit = [request for request in self.waiting if self.fits(request, instance)]
            if fit:
                request = min(fit, key=lambda request: (request.arrival, request.session))
                self.waiting.remove(request)
                self.send(request, instance)

    def fits(self, request: Request, instance: int) -> bool:
        base = self.base(request.session)
        alone = len(base) == len(self.spec.kinds)
        return (instance in base) == (request.items > self.threshold or alone)


class Clkwrk(Base):
    refuse = learn = False

    def __init__(self, spec: ClusterSpec) -> None:
        super().__init__(spec)
        self.queues: list[list[Request]] = [[] for _ in spec.kinds]
        self.running: dict[int, tuple[Request, float, float]] = {}  # with start and believed length, s
        largest = max(session.latency.shape[1] for session in spec.sessions) - 1
        self.predictor = make_predictor(max(spec.kinds) + 1, len(spec.sessions), largest)

    def latency(self, instance: int, request: Request) -> float:
        if self.learn:
            return float(predict(self.predictor, self.spec.kinds[instance], request.session, request.items))
        return super().latency(instance, request)

    def arrive(self, session: int, source: int, number: int, now: float) -> None:
        self.now = now
        request = Request(session, number, now, self.items)
        ends = [self.end(instance, request) for instance in range(len(self.spec.kinds))]
        ahead = [len(queue) + (i in self.free_at) for i, queue in enumerate(self.queues)]
        best = min(range(len(ends)), key=lambda instance: (ends[instance], ahead[instance], instance))
        if self.refuse and ends[best] > now + self.budget(session) + TOLERANCE:
            self.commands.append(Given(DROP, session, (number,)))
            return
        self.queues[best].append(request)
        if best not in self.free_at:
            self.send(self.queues[best].pop(0), best)

    def end(self, instance: int, request: Request) -> float:
        free = max(self.free_at.get(instance, 0.0), self.now)
        return free + sum(self.travel + self.latency(instance, q) for q in [*self.queues[instance], request])

    def refuse_late(self, instance: int, queue: list[Request]) -> None:
        for session in range(len(self.spec.sessions)):
            mine = [request for request in queue if request.session == session]
            late = list(takewhile(lambda q: not self.in_time(instance, q), mine))
            if late:
                self.commands.append(Given(DROP, session, tuple(q.number for q in late)))
                queue[:] = [q for q in queue if q not in late]

    def in_time(self, instance: int, request: Request) -> bool:
        end = self.now + self.travel + self.latency(instance, request)
        return end <= request.arrival + self.budget(request.session) + TOLERANCE

    def send(self, request: Request, instance: int) -> None:
        self.running[instance] = request, self.now + self.travel, self.latency(instance, request)
        super().send(request, instance)

    def finish(self, instance: int, now: float) -> None:
        super().finish(instance, now)
        request, start, length = self.running[instance]
        if self.learn:
            kind = self.spec.kinds[instance]
            learn(self.predictor, kind, request.session, request.items, now - start, length)
        queue = self.queues[instance]
        if self.refuse:
            self.refuse_late(instance, queue)
        if queue:
            request = min(queue, key=lambda request: (request.arrival, request.session))
            queue.remove(request)
            self.send(request, instance)


class Oracle(Base):
    def assign(self) -> None:
        for instance in self.fastest_first:
            base = [q for q in self.waiting if instance in self.base(q.session)]
            small = [
                q
                for q in self.waiting
                if instance not in self.base(q.session)
                and self.travel + self.latency(instance, q) <= self.budget(q.session) + TOLERANCE
            ]
            if base:
                ends = [max((q for q in base if q.session == s), key=self.size) for s in self.sessions(base)]
                request = max(ends, key=lambda q: (self.latency(instance, q), -q.session))
            elif small:
                heads = [
                    min((q for q in small if q.session == s), key=self.size) for s in self.sessions(small)
                ]
                request = min(heads, key=lambda q: (self.latency(instance, q), q.session))
            else:
                continue
            self.waiting.remove(request)
            self.send(request, instance)

    @staticmethod
    def size(request: Request) -> tuple[int, int]:
        return request.items, request.number

    @staticmethod
    def sessions(requests: list[Request]) -> list[int]:
        return sorted({request.session for request in requests})


TWINS = {"kairos": Kairos, "ribbon": Ribbon, "drs": Drs, "clkwrk": Clkwrk, "oracle": Oracle}
