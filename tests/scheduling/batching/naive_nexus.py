"""Plain twin of Nexus: lists of requests, every rule written as the paper says it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.scheduling.twin import Given
from tuner.scheduling.cluster import ClusterSpec
from tuner.scheduling.vocabulary import DISPATCH, DROP, NEVER, TOLERANCE

__all__ = ["NaiveNexus"]


@dataclass
class Circle:
    """The backends of a session as one frontend sees them."""

    names: list[int]
    rates: list[float]
    at: int
    earned: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.earned = [0.0] * len(self.names)

    def next(self) -> int:
        while self.earned[self.at] < 1 - 1e-9:
            self.at = (self.at + 1) % len(self.names)
            self.earned[self.at] += self.rates[self.at] / max(self.rates)
        self.earned[self.at] -= 1
        return self.names[self.at]


class NaiveNexus:
    """Twin of :mod:`tuner.scheduling.batching.nexus` for a plan."""

    def __init__(
        self,
        spec: ClusterSpec,
        plan: Sequence[Sequence[tuple[int, int, float]]],
        *,
        frontends: int = 1,
        early: bool = True,
        order: str = "least_left",
    ) -> None:
        self.spec, self.plan, self.early, self.order = spec, plan, early, order
        self.asked = [(0.0, 0.0)] * len(plan)  # s of execution per s, and when that was
        self.commands: list[Given] = []
        self.wake_at = NEVER
        self.busy = [False] * len(plan)
        self.turn = [0] * len(plan)
        self.queues: list[dict[int, list[tuple[float, int]]]] = [{s: [] for s, _, _ in row} for row in plan]
        self.circles = []
        for frontend in range(frontends):
            row = []
            for session in range(len(spec.sessions)):
                hosts = [(a, rate) for a, shares in enumerate(plan) for s, _, rate in shares if s == session]
                start = frontend * len(hosts) // frontends - 1
                row.append(Circle([a for a, _ in hosts], [rate for _, rate in hosts], start))
            self.circles.append(row)

    def arrive(self, session: int, source: int, number: int, now: float) -> None:
        circle = self.circles[source % len(self.circles)][session]
        if not circle.names:
            self.drop(session, [(now, number)])
            return
        accelerator = circle.next()
        self.queues[accelerator][session].append((now, number))
        size = next(size for s, size, _ in self.plan[accelerator] if s == session)
        each = self.latency(accelerator, session, size) / size
        self.asked[accelerator] = self.asked_of(accelerator, now) + each, now
        if not self.busy[accelerator]:
            self.serve(accelerator, now)

    def finish(self, accelerator: int, now: float) -> None:
        self.busy[accelerator] = False
        self.serve(accelerator, now)

    def wake(self, now: float) -> None:
        raise AssertionError(f"nobody asked for it, {now=}")

    def serve(self, accelerator: int, now: float) -> None:
        row = self.plan[accelerator]
        order = [(self.turn[accelerator] + step) % len(row) for step in range(len(row))]
        for place in order:
            session, size, _ = row[place]
            choose = self.window if self.early else self.oldest
            if self.order == "most_left" or (
                self.order == "adaptive" and self.asked_of(accelerator, now) > 1
            ):
                choose = self.newest
            batch = choose(accelerator, session, size, now)
            if batch:
                start = self.start(batch, now)
                end = start + self.latency(accelerator, session, len(batch))
                numbers = tuple(number for _, number in batch)
                self.commands.append(Given(DISPATCH, session, numbers, accelerator, start, end))
                self.busy[accelerator] = True
                self.turn[accelerator] = (place + 1) % len(row)
                return

    def window(self, accelerator: int, session: int, size: int, now: float) -> list[tuple[float, int]]:
        """Early drop."""
        queue = self.queues[accelerator][session]
        for first in range(len(queue) + 1):
            batch = queue[first : first + size]
            if not batch or self.in_time(accelerator, session, batch, now):
                break
        self.drop(session, queue[:first])
        del queue[: first + len(batch)]
        return batch

    def oldest(self, accelerator: int, session: int, size: int, now: float) -> list[tuple[float, int]]:
        """Lazy drop."""
        queue = self.without_late(accelerator, session, now)
        sizes = range(1, min(size, len(queue)) + 1)
        fits = [n for n in sizes if self.in_time(accelerator, session, queue[:n], now)]
        batch = queue[: max(fits, default=0)]
        del queue[: len(batch)]
        return batch

    def newest(self, accelerator: int, session: int, size: int, now: float) -> list[tuple[float, int]]:
        """Lazy drop, and those with the most time left are served."""
        queue = self.without_late(accelerator, session, now)
        sizes = range(1, min(size, len(queue)) + 1)
        fits = [n for n in sizes if self.in_time(accelerator, session, queue[-n:], now)]
        batch = queue[len(queue) - max(fits, default=0) :]
        del queue[len(queue) - len(batch) :]
        return batch

    def without_late(self, accelerator: int, session: int, now: float) -> list[tuple[float, int]]:
        queue = self.queues[accelerator][session]
        late = [r for r in queue if not self.in_time(accelerator, session, [r], now)]
        assert late == queue[: len(late)]
        self.drop(session, late)
        del queue[: len(late)]
        return queue

    def asked_of(self, accelerator: int, now: float) -> float:
        """How much of its time the requests that came to a backend need, as an average that fades in 1 s."""
        asked, then = self.asked[accelerator]
        return asked * math.exp(-(now - then))

    def in_time(self, accelerator: int, session: int, batch: list[tuple[float, int]], now: float) -> bool:
        budget = self.spec.sessions[session].slo - self.spec.delays.response
        end = self.start(batch, now) + self.latency(accelerator, session, len(batch))
        return end <= batch[0][0] + budget + TOLERANCE

    def start(self, batch: list[tuple[float, int]], now: float) -> float:
        return max(now, batch[-1][0] + self.spec.delays.control + self.spec.delays.data)

    def latency(self, accelerator: int, session: int, size: int) -> float:
        return float(self.spec.sessions[session].latency[self.spec.kinds[accelerator], size])

    def drop(self, session: int, batch: list[tuple[float, int]]) -> None:
        if batch:
            numbers = tuple(number for _, number in batch)
            self.commands.append(Given(DROP, session, numbers, -1, 0.0, 0.0))
