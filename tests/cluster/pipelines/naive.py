"""The plain twin of queries in the engine: objects, a heap of events, and the same policy functions."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tuner.cluster.pipelines import PipelineScenario
from tuner.scheduling.vocabulary import DISPATCH
from tuner.testing.driver import PolicyRun, believed, tell

FINISH, FOLLOW, ARRIVE = range(3)


@dataclass
class NaiveQuery:
    """One query: what of it is under way, and what became of it."""

    arrival: float
    outstanding: Counter[str] = field(default_factory=Counter)
    made: Counter[str] = field(default_factory=Counter)
    over: set[str] = field(default_factory=set)
    failed: bool = False
    ended: float = math.nan


class NaivePipelines:
    """Runs queries with whole gammas to the end, with deadlines that are split or carried."""

    def __init__(self, scenario: PipelineScenario, times: Sequence[float]) -> None:
        self.query = scenario.query
        self.names = list(self.query.order)
        self.carried = scenario.deadlines == "carried"
        self.hop = scenario.hop_ms / 1e3
        self.run = PolicyRun(policy=scenario.make_policy())
        self.queries = [NaiveQuery(time) for time in times]
        self.requests: list[tuple[NaiveQuery, str]] = []
        self.count = 0
        self.events: list[tuple[float, int, int, Any]] = []
        self.busy: dict[int, float] = {}
        for query in self.queries:
            query.outstanding[self.names[0]] = query.made[self.names[0]] = 1
            self.plan(query.arrival, ARRIVE, (query, self.names[0]))

    def plan(self, time: float, kind: int, what: Any) -> None:
        heapq.heappush(self.events, (time, kind, self.count, what))
        self.count += 1

    def go(self) -> list[NaiveQuery]:
        now = 0.0
        while any(math.isnan(query.ended) for query in self.queries):
            wake_at = max(float(self.run.policy[0].board[0].wake_at), now)
            if not self.events or wake_at < self.events[0][0]:
                now = wake_at
                tell(self.run, "wake", (), now)
            else:
                now, kind, _, (first, second) = heapq.heappop(self.events)
                if kind == FINISH:
                    tell(self.run, "finish", (first,), now)
                    for query, stage in (self.requests[number] for number in second):
                        self.answer(query, stage, now)
                else:
                    self.arrive(first, second, now)
            self.carry_out(now)
        return self.queries

    def arrive(self, query: NaiveQuery, stage: str, now: float) -> None:
        early = now - query.arrival if self.carried else 0.0
        self.run.policy[0].board[0].early = early
        self.requests.append((query, stage))
        tell(self.run, "arrive", (self.names.index(stage), 0, len(self.requests) - 1), now)

    def carry_out(self, now: float) -> None:
        for command in self.run.events[-1].commands:
            if command.kind == DISPATCH:
                start = max(command.start, now, self.busy.get(command.accelerator, 0.0))
                end = start + believed(self.run.policy[0], command)
                self.busy[command.accelerator] = end
                self.plan(end, FINISH, (command.accelerator, command.numbers))
            else:
                for number in command.numbers:
                    query, stage = self.requests[number]
                    query.failed = True
                    query.outstanding[stage] -= 1
                    self.close(query, now)

    def answer(self, query: NaiveQuery, stage: str, now: float) -> None:
        query.outstanding[stage] -= 1
        for call in self.query.by_name[stage].next:
            if len(self.callers(call.stage)) == 1:
                self.launch(query, call.stage, call.gamma, now)
        self.close(query, now)

    def launch(self, query: NaiveQuery, stage: str, count: float, now: float) -> None:
        if not query.failed:
            query.outstanding[stage] += int(count)
            query.made[stage] += int(count)
            for _ in range(int(count)):
                self.plan(now + self.hop, FOLLOW, (query, stage))

    def callers(self, stage: str) -> list[tuple[str, float]]:
        return [
            (name, call.gamma)
            for name in self.names
            for call in self.query.by_name[name].next
            if call.stage == stage
        ]

    def close(self, query: NaiveQuery, now: float) -> None:
        for stage in self.names:
            before = [name for name, _ in self.callers(stage)]
            if stage not in query.over and query.over.issuperset(before) and not query.outstanding[stage]:
                query.over.add(stage)
                for call in self.query.by_name[stage].next:
                    callers = self.callers(call.stage)
                    if len(callers) > 1 and query.over.issuperset(name for name, _ in callers):
                        self.launch(query, call.stage, max(query.made[n] * g for n, g in callers), now)
        if len(query.over) == len(self.names):
            query.ended = now


def summary(queries: Sequence[NaiveQuery], slo: float) -> tuple[int, int, int, float]:
    """Return how many are good, late and dropped, and the mean latency of those that were answered."""
    answered = [query for query in queries if not query.failed]
    latency = np.array([query.ended - query.arrival for query in answered])
    late = int((latency > slo + 1e-9).sum())
    return len(answered) - late, late, len(queries) - len(answered), float(latency.mean())
