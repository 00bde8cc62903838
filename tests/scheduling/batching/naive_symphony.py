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
    offered: list[int] = field(default_factory=list)
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
        self.kinds = sorted(set(spec.kinds))
        tables = [session.latency[: max(spec.kinds) + 1] for session in spec.sessions]
        self.lines = [
            Line(table, session.slo, intercept(table, self.useful(table, session.slo, spec.kinds)))
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

    def useful(self, latency: np.ndarray, slo: float, kinds: Sequence[int]) -> list[int]:
        """Those of some kinds on which a request can end in time if it is sent when it comes; all if none."""
        budget = slo - self.delays.response + TOLERANCE
        return [kind for kind in kinds if self.delay(1) + latency[kind, 1] <= budget] or list(kinds)

    def first_free(self, kind: int) -> Machine | None:
        own = [each for each in self.machines if each.kind == kind]
        while (machine := min(own, key=lambda each: each.free)).free < inf:
            if not machine.batches or sum(machine.batches[0]) > self.now:
                return machine
            machine.free = inf  # overdue
        return None

    def next_kind(self, line: Line, count: int) -> int:
        """That of the machine that is free first, of those where nothing would be late if they were free."""
        if len(self.kinds) == 1 or not line.queue:
            return self.kinds[0]
        latest = line.queue[0].deadline
        alive = [kind for kind in self.kinds if not self.hangs(kind)]
        good = [kind for kind in alive if self.ends_by(line, kind, count, -inf, latest)]
        if not good:
            budget = line.slo - self.delays.response + TOLERANCE
            served = [kind for kind in alive if self.delay(1) + line.latency[kind, 1] <= budget]
            return min(served or self.kinds, key=lambda kind: float(line.latency[kind, count]))
        free = {kind: min(each.free for each in self.machines if each.kind == kind) for kind in good}
        if min(free.values()) == inf:
            return good[0]
        return min((each for each in self.machines if each.kind in good), key=lambda each: each.free).kind

    def hangs(self, kind: int) -> bool:
        """Whether all machines of a kind are late with their batch by more than it takes."""
        own = [each for each in self.machines if each.kind == kind]
        return all(each.free == inf and each.batches for each in own) and all(
            each.batches[0][0] + 2 * each.batches[0][1] < self.now for each in own
        )

    def first_to_end(self, line: Line, count: int) -> Machine:
        """The machine on which a batch that is sent now ends first."""
        found = [machine for kind in self.kinds if (machine := self.first_free(kind))]
        sent = self.now + self.delay(count)
        return min(found, key=lambda each: float(max(sent, each.free) + line.latency[each.kind, count]))

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
        self.plan(session, self.next_kind(line, self.wanted(line)), -inf)
        self.settle()

    def wake(self, now: float) -> None:
        self.now = now
        while min(timers := [line.timer for line in self.lines]) <= now:
            session = timers.index(min(timers))
            self.plan(session, self.next_kind(self.lines[session], self.wanted(self.lines[session])), -inf)
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
        slowest = line.latency[self.useful(line.latency, line.slo, range(len(line.latency)))].max(axis=0)
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
        line.offered = self.offers(line, free)

    def wanted(self, line: Line) -> int:
        """How large a batch must be in time for its head not to be given up, as far as is known."""
        if self.options.drop == "lazy":
            return 1
        count = len(line.rest) if self.options.drop == "window" else len(line.queue)
        return max(min(count, self.target(line), line.largest), 1)

    def offers(self, line: Line, free: float) -> list[int]:
        """The kinds of machines that the candidate may be sent to."""
        if free > -inf:
            return [line.kind]
        count, latest = self.wanted(line), line.queue[0].deadline
        return [
            kind for kind in self.kinds if kind == line.kind or self.ends_by(line, kind, count, -inf, latest)
        ]

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
            offers = [offer for kind in self.kinds if (offer := self.offer(kind))]
            send_at, _, accelerator, session = min(offers, default=(inf, inf, -1, -1))
            if send_at > self.now:
                break
            self.grant(session, self.machines[accelerator])
        self.wake_at = max(min([send_at, *(line.timer for line in self.lines)]), self.now)

    def offer(self, kind: int) -> tuple[float, float, int, int] | None:
        """When a kind can be sent its next candidate, when its machine is free, the machine, the session."""
        ready = [s for s, line in enumerate(self.lines) if line.place is not None and kind in line.offered]
        machine = self.first_free(kind) if ready else None
        if machine is None:
            return None
        session = min(ready, key=lambda s: (self.lines[s].place, s))
        send_at = max(machine.free - self.delay(self.lines[session].planned), self.now)
        return send_at, machine.free, self.machines.index(machine), session

    def grant(self, session: int, machine: Machine) -> None:
        line = self.lines[session]
        count, latest = self.wanted(line), line.queue[0].deadline
        same = line.kind == machine.kind
        if same and self.ends_by(line, machine.kind, line.planned, machine.free, latest):
            self.send(session, line.planned, machine)
            self.plan(session, self.next_kind(line, self.wanted(line)), -inf)
            return
        if len(self.kinds) > 1 and not self.ends_by(line, machine.kind, count, machine.free, latest):
            machine = self.first_to_end(line, count)
        self.plan(session, machine.kind, machine.free)


class NaiveEager(Base):
    """See `tuner.scheduling.batching.eager`."""

    def arrive(self, session: int, source: int, number: int, now: float) -> None:
        self.now = now
        self.lines[session].rest.append(self.make(session, number))
        if len(self.lines[session].rest) == 1:
            self.requeue(session)
        self.settle()

    def wake(self, now: float) -> None:
        self.now = now
        while min(heads := [self.head(session) for session in range(len(self.lines))]) <= now:
            self.drop(heads.index(min(heads)), 1)
            self.requeue(heads.index(min(heads)))
        self.settle()

    def head(self, session: int) -> float:
        queue = self.lines[session].queue
        return queue[0].deadline if queue else inf

    def requeue(self, session: int) -> None:
        """Find which kinds take from the session with the head that it has now."""
        line, latest = self.lines[session], self.head(session)
        own = self.next_kind(line, 1)
        line.offered = [
            kind for kind in self.kinds if kind == own or self.ends_by(line, kind, 1, -inf, latest)
        ]

    def settle(self) -> None:
        send_at = inf
        if len(self.kinds) == 1 and any(line.queue for line in self.lines):
            send_at = self.first_time()
        if len(self.kinds) > 1 or send_at <= self.now:
            send_at = self.serve()
        self.wake_at = max(min([send_at, *map(self.head, range(len(self.lines)))]), self.now)

    def first_time(self) -> float:
        """When the largest batch is sent to the only kind of machine, whatever is overdue."""
        session = min(range(len(self.lines)), key=lambda each: (self.head(each), each))
        line = self.lines[session]
        return min(each.free for each in self.machines) - self.delay(min(len(line.queue), line.largest))

    def serve(self) -> float:
        while True:
            batches = [batch for kind in self.kinds if (batch := self.next_batch(kind))]
            send_at, _, accelerator, session, count = min(batches, default=(inf, inf, -1, -1, 0))
            if send_at > self.now:
                return send_at
            machine = self.machines[accelerator]
            if count:
                self.send(session, count, machine)
                self.requeue(session)
            else:
                self.give_up(session, machine)

    def next_batch(self, kind: int) -> tuple[float, float, int, int, int] | None:
        """When the next batch can be sent to a kind, when its machine is free, that, its session and size."""
        found = [s for s, line in enumerate(self.lines) if line.queue and kind in line.offered]
        machine = self.first_free(kind) if found else None
        if machine is None:
            return None
        session = min(found, key=lambda s: (self.head(s), s))
        line = self.lines[session]
        size = limit = min(len(line.queue), line.largest)
        if machine.free - self.delay(limit) <= self.now:
            size = 0
            while size < limit and self.ends_by(line, kind, size + 1, machine.free, self.head(session)):
                size += 1
        send_at = max(machine.free - self.delay(size), self.now)
        return send_at, machine.free, self.machines.index(machine), session, size

    def give_up(self, session: int, machine: Machine) -> None:
        line = self.lines[session]
        best = self.first_to_end(line, 1) if len(self.kinds) > 1 else machine
        lost = 0
        while lost < len(line.queue) and not self.ends_by(
            line, best.kind, 1, best.free, line.queue[lost].deadline
        ):
            lost += 1
        if lost:
            self.drop(session, lost)
            self.requeue(session)
        else:
            line.offered.remove(machine.kind)
