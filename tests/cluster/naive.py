"""The plain twin of the cluster engine: a heap, objects, and the same policy functions."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tuner.scheduling.vocabulary import DISPATCH, Cluster
from tuner.testing.driver import Command, PolicyRun, believed, tell


@dataclass(frozen=True)
class Request:
    """What became of one request."""

    session: int
    arrival: float
    start: float = math.nan
    answer: float = math.nan

    @property
    def dropped(self) -> bool:
        return math.isnan(self.answer)

    @property
    def latency(self) -> float:
        return self.answer - self.arrival


@dataclass(frozen=True)
class Batch:
    """One batch that was executed."""

    session: int
    accelerator: int
    start: float
    end: float
    requests: tuple[int, ...]


@dataclass
class NaiveEngine:
    """Runs a policy on given arrivals to the end."""

    policy: Any
    factor: Sequence[float]
    control: Sequence[float]
    data: Sequence[float]
    response: Sequence[float]
    now: float = 0.0
    times: Sequence[float] | np.ndarray = ()
    requests: dict[int, Request] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    busy_until: dict[int, float] = field(default_factory=dict)
    outstanding: list[tuple[float, int]] = field(default_factory=list)

    def run(self, times: np.ndarray, sessions: np.ndarray) -> None:
        self.times = times
        trace = PolicyRun(policy=self.policy)
        arrived = 0
        while True:
            end = self.outstanding[0][0] if self.outstanding else math.inf
            arrival = float(times[arrived]) if arrived < len(times) else math.inf
            timer = max(float(trace.policy[0].board[0].wake_at), self.now)
            if arrived == len(self.requests) == len(times) and end == math.inf:
                return
            self.now, kind = min((end, 0), (arrival, 1), (timer, 2))
            assert self.now < math.inf
            if kind == 0:
                event = tell(trace, "finish", (heapq.heappop(self.outstanding)[1],), self.now)
            elif kind == 1:
                event = tell(trace, "arrive", (int(sessions[arrived]), 0, arrived), self.now)
                arrived += 1
            else:
                event = tell(trace, "wake", (), self.now)
            for command in event.commands:
                self._carry_out(trace.policy[0], command)

    def _carry_out(self, cluster: Cluster, command: Command) -> None:
        assert not set(command.numbers) & set(self.requests), "answered twice"
        start = answer = math.nan
        if command.kind == DISPATCH:
            start, answer = self._execute(cluster, command)
        for number in command.numbers:
            self.requests[number] = Request(command.session, float(self.times[number]), start, answer)

    def _execute(self, cluster: Cluster, command: Command) -> tuple[float, float]:
        draw = len(self.batches)
        control, data = self.control[draw % len(self.control)], self.data[draw % len(self.data)]
        there = self.now + control + data * len(command.numbers)
        if cluster.queues[command.queue].accelerator >= 0:
            # sent to the accelerator's own queue when it arrived
            there = float(self.times[command.numbers[-1]]) + control + data
        start = max(command.start, there, self.busy_until.get(command.accelerator, 0.0))
        end = start + believed(cluster, command) * self.factor[draw % len(self.factor)]
        self.batches.append(Batch(command.session, command.accelerator, start, end, command.numbers))
        self.busy_until[command.accelerator] = end
        heapq.heappush(self.outstanding, (end, command.accelerator))
        return start, end + self.response[draw % len(self.response)]
