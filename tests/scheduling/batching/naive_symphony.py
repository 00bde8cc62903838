"""The deferred and the eager scheduler once more, plainly: lists and the formulas of the paper, no trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np

from tests.scheduling.twin import Given
from tuner.scheduling.batching.symphony import SymphonyOptions
from tuner.scheduling.cluster import ClusterSpec
from tuner.scheduling.vocabulary import DISPATCH, DROP

__all__ = ["NaiveEager", "NaiveSymphony"]

TOLERANCE = 5e-10
GRACE = 1e-6
AHEAD = 8


class Waiting(NamedTuple):
    number: int
    arrival: float
    deadline: float


@dataclass
class Machine:
    kind: int
    free: float = 0.0
    batches: list[tuple[float, float]] = field(default_factory=list)  # start, length; oldest first


@dataclass
class Line:
    """A session's requests: `shed` are those that stand in the way of one batch of all the rest."""

    latency: np.ndarray  # (K, B+1)
    slo: float
    beta: float
    cap: int = 0
    kind: int = 0
    shed: list[Waiting] = field(default_factory=list)
    rest: list[Waiting] = field(default_factory=list)
    planned: int = 0
    timer: float = inf
    place: float | None = None
    arrivals: list[float] = field(default_factory=list)
    rate: float = 0.0
    look_at: float = 0.0
    began: float = -1.0
    windows: int = 0

    @property
    def queue(self) -> list[Waiting]:
        return self.shed + self.rest

    @property
    def largest(self) -> int:
        size = int(self.latency.shape[1]) - 1
        return min(size, self.cap) if self.cap else size


class Base:
    """What both have: accelerators, delays, commands."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.delays = spec.delays
        self.machines = [Machine(kind) for kind in spec.kinds]
        tables = [session.latency[: max(spec.kinds) + 1] for session in spec.sessions]
        self.lines = [
            Line(table, session.slo, intercept(table, spec.kinds))
            for session, table in zip(spec.sessions, tables, strict=True)
        ]
        self.now = 0.0
        self.commands: list[Given] = []
        self.wake_at = inf

    def delay(self, count: int) -> float:
        return self.delays.control + self.delays.data * count

    def ends_by(self, line: Line, kind: int, count: int, free: float, deadline: float) -> bool:
        if count >= line.latency.shape[1]:
            return False
        start = max(self.now + self.delay(count), free)
        return bool(start + line.latency[kind, count] <= deadline + TOLERANCE)

    def make(self, session: int, number: int) -> Waiting:
        budget = self.lines[session].slo - self.delays.response
        return Waiting(number, self.now, self.now + budget)

    def first_free(self) -> Machine | None:
        while (machine := min(self.machines, key=lambda each: each.free)).free < inf:
            if not machine.batches or sum(machine.batches[0]) > self.now:
                return machine
            machine.free = inf  # overdue
        return None

    def next_kind(self) -> int:
        return min(self.machines, key=lambda each: each.free).kind

    def send(self, session: int, count: int, machine: Machine) -> None:
        line = self.lines[session]
        start = max(self.now + self.delay(count), machine.free)
        length = float(line.latency[machine.kind, count])
        numbers = self.take(line, count)
        accelerator = self.machines.index(machine)
        self.commands.append(Given(DISPATCH, session, numbers, accelerator, start, start + length))
        machine.batches.append((start, length))
        machine.free = start + length if len(machine.batches) < AHEAD else inf

    def take(self, line: Line, count: int) -> tuple[int, ...]:
        taken = line.queue[:count]
        line.rest = line.rest[max(count - len(line.shed), 0) :]
        line.shed = line.shed[count:]
        return tuple(each.number for each in taken)

    def drop(self, session: int, count: int) -> None:
        if count:
            self.commands.append(Given(DROP, session, self.take(self.lines[session], count)))

    def finish(self, accelerator: int, now: float) -> None:
        self.now = now
        machine = self.machines[accelerator]
        machine.batches.pop(0)
        end = now
        for index, (start, length) in enumerate(machine.batches):
            machine.batches[index] = (max(start, end), length)
            end = max(start, end) + length
        machine.free = end
        self.settle()

    def settle(self) -> None:
        raise NotImplementedError


def intercept(latency: np.ndarray, kinds: Sequence[int]) -> float:
    """Where the straight line through the mean profile meets the batch of none, s."""
    mean = np.array([latency[kind] for kind in kinds]).mean(axis=0)[1:]
    return max(float(np.polyfit(np.arange(1, len(mean) + 1), mean, 1)[1]), 0.0) if len(mean) > 1 else 0.0


class NaiveSymphony(Base):
    """See `tuner.scheduling.batching.symphony`."""

    def __init__(self, spec: ClusterSpec, options: SymphonyOptions) -> None:
        super().__init__(spec)
        self.options = options
        for line in self.lines:
            line.cap = options.cap

    def arrive(self, session: int, source: int, number: int, now: float) -> None:
        self.now = now
        line = self.lines[session]
        line.rest.append(self.make(session, number))
        line.arrivals.append(now)
        self.measure(line)
        self.plan(session, self.next_kind(), -inf)
        self.settle()

    def wake(self, now: float) -> None:
        self.now = now
        while min(timers := [line.timer for line in self.lines]) <= now:
            self.plan(timers.index(min(timers)), self.next_kind(), -inf)
        self.settle()

    # -- rate and target

    def measure(self, line: Line) -> None:
        if self.now < line.look_at:
            return
        if line.began < 0:
            line.began, line.windows = self.now, 0
            line.arrivals = []  # the one that opens the first window does not count
        elif self.now >= line.began + 10.0:
            line.began, line.windows = self.now, 1
            line.arrivals = [self.now]
        elif self.now >= line.began + 5.0:
            line.began, line.windows = line.began + 5.0, 1
        line.look_at = min(self.now + 0.05, line.began + 5.0)
        passed = self.now - line.began
        current = sum(1 for each in line.arrivals if each >= line.began)
        before = sum(1 for each in line.arrivals if line.began - 5.0 <= each < line.began)
        if line.windows:
            rate = (before * (1 - passed / 5.0) + current) / 5.0
        else:
            rate = current / passed if passed > 0 else 0.0
        if abs(rate - line.rate) > 0.01 * line.rate:
            line.rate = rate

    def target(self, line: Line) -> int:
        sizes = range(1, line.latency.shape[1])
        slowest = line.latency.max(axis=0)
        if self.options.drop == "early" and not self.options.target_batch:
            return max((b for b in sizes if slowest[b] <= line.slo / 2), default=1)
        if not self.options.target_batch:
            return sizes[-1]
        if line.rate == 0:
            return max((b for b in sizes if slowest[b] <= line.slo / 2), default=1)
        budget = line.slo - self.delays.response - self.delays.control
        good = 1
        for b in sizes:
            n = line.rate * slowest[b] / b
            needed = slowest[b] * (1 + 1 / n) if n > 1 else slowest[b] + b / line.rate
            if needed + self.delays.data * b <= budget:
                good = b
            elif b > 1:
                break
        return good

    # -- the candidate

    def plan(self, session: int, kind: int, free: float) -> None:
        line = self.lines[session]
        line.kind = kind
        rule = {"window": self.window, "early": self.early, "lazy": self.lazy}[self.options.drop]
        rule(session, kind, free)
        queue = line.queue
        if not queue:
            line.planned, line.timer, line.place = 0, inf, None
            return
        count = line.planned
        head = queue[0]
        latest = head.deadline - line.latency[kind, count] - self.delay(count)
        sched_at, due = latest, self.now
        if count < line.largest:
            sched_at = head.deadline - line.latency[kind, count + 1] - self.delay(count + 1)
            due = head.arrival + self.options.deferral * (sched_at - head.arrival)
        enough = line.beta * line.rate if self.options.schedulable == "beta_lambda" and line.rate else inf
        if due > self.now and count <= enough:
            line.timer, line.place = due, None
            return
        line.timer = max(latest, self.now - TOLERANCE) + GRACE
        line.place = {"sched_at": sched_at, "deadline": head.deadline, "latest": latest}[self.options.order]

    def window(self, session: int, kind: int, free: float) -> None:
        line = self.lines[session]
        while line.rest and not self.ends_by(line, kind, len(line.rest), free, line.rest[0].deadline):
            line.shed.append(line.rest.pop(0))
        count = min(len(line.rest), self.target(line), line.largest)
        lost = 0
        while lost < len(line.shed) and (
            count == 0 or not self.ends_by(line, kind, count, free, line.shed[lost].deadline)
        ):
            lost += 1
        self.drop(session, lost)
        self.extend(line, kind, free, count)

    def early(self, session: int, kind: int, free: float) -> None:
        line = self.lines[session]
        lost = count = 0
        queue = line.queue
        while lost < len(queue):
            count = min(len(queue) - lost, self.target(line), line.largest)
            if self.ends_by(line, kind, count, free, queue[lost].deadline):
                break
            lost += 1
        self.drop(session, lost)
        self.extend(line, kind, free, count)

    def lazy(self, session: int, kind: int, free: float) -> None:
        line = self.lines[session]
        queue = line.queue
        lost = 0
        while lost < len(queue) and not self.ends_by(line, kind, 1, free, queue[lost].deadline):
            lost += 1
        self.drop(session, lost)
        self.extend(line, kind, free, 1)

    def extend(self, line: Line, kind: int, free: float, count: int) -> None:
        queue = line.queue
        limit = min(len(queue), line.largest)
        count = min(count, limit)
        while count < limit and self.ends_by(line, kind, count + 1, free, queue[0].deadline):
            count += 1
        line.planned = count

    # -- the accelerators

    def settle(self) -> None:
        send_at = inf
        while True:
            ready = [s for s, line in enumerate(self.lines) if line.place is not None]
            machine = self.first_free() if ready else None
            if machine is None:
                send_at = inf
                break
            session = min(ready, key=lambda s: (self.lines[s].place, s))
            line = self.lines[session]
            send_at = machine.free - self.delay(line.planned)
            if send_at > self.now:
                break
            same = line.kind == machine.kind
            if same and self.ends_by(line, machine.kind, line.planned, machine.free, line.queue[0].deadline):
                self.send(session, line.planned, machine)
                self.plan(session, self.next_kind(), -inf)
            else:
                self.plan(session, machine.kind, machine.free)
        self.wake_at = max(min([send_at, *(line.timer for line in self.lines)]), self.now)


class NaiveEager(Base):
    """See `tuner.scheduling.batching.eager`."""

    def arrive(self, session: int, source: int, number: int, now: float) -> None:
        self.now = now
        self.lines[session].rest.append(self.make(session, number))
        self.settle()

    def wake(self, now: float) -> None:
        self.now = now
        while min(heads := [self.head(session) for session in range(len(self.lines))]) <= now:
            self.drop(heads.index(min(heads)), 1)
        self.settle()

    def head(self, session: int) -> float:
        queue = self.lines[session].queue
        return queue[0].deadline if queue else inf

    def next(self) -> int:
        """The session with the earliest deadline."""
        return min(range(len(self.lines)), key=lambda session: (self.head(session), session))

    def send_at(self, free: float) -> float:
        """When the largest batch of that session is sent, to start at `free`; no smaller one goes before."""
        line = self.lines[self.next()]
        return free - self.delay(min(len(line.queue), line.largest))

    def settle(self) -> None:
        send_at = inf
        if self.lines[self.next()].queue:
            send_at = self.send_at(min(machine.free for machine in self.machines))
            if send_at <= self.now:
                send_at = self.serve()
        self.wake_at = max(min([send_at, *map(self.head, range(len(self.lines)))]), self.now)

    def serve(self) -> float:
        while True:
            session = self.next()
            line = self.lines[session]
            machine = self.first_free() if line.queue else None
            if machine is None:
                return inf
            queue = line.queue
            if self.send_at(machine.free) > self.now:
                return self.send_at(machine.free)
            count, limit = 0, min(len(queue), line.largest)
            while count < limit and self.ends_by(
                line, machine.kind, count + 1, machine.free, queue[0].deadline
            ):
                count += 1
            if machine.free - self.delay(count) > self.now:
                return machine.free - self.delay(count)
            if count:
                self.send(session, count, machine)
                continue
            lost = 0
            while lost < len(queue) and not self.ends_by(
                line, machine.kind, 1, machine.free, queue[lost].deadline
            ):
                lost += 1
            self.drop(session, lost)
