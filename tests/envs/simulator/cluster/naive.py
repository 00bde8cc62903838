"""The plain twin of the cluster engine: a heap, objects, and the same policy functions."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.scheduling.cluster import grow
from tuner.scheduling.policy import arrive, finish, wake
from tuner.scheduling.vocabulary import DISPATCH, FULL


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
    requests: dict[int, Request] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    busy_until: dict[int, float] = field(default_factory=dict)
    outstanding: list[tuple[float, int]] = field(default_factory=list)

    def run(self, times: Sequence[float], sessions: Sequence[int]) -> None:
        arrived = 0
        while True:
            end = self.outstanding[0][0] if self.outstanding else math.inf
            arrival = float(times[arrived]) if arrived < len(times) else math.inf
            timer = max(float(self.policy[0].board[0].wake_at), self.now)
            if arrived == len(self.requests) == len(times) and end == math.inf:
                return
            now, kind = min((end, 0), (arrival, 1), (timer, 2))
            assert self.now <= now < math.inf
            self.now = now
            if kind == 0:
                _, accelerator = heapq.heappop(self.outstanding)
                finish(self.policy, accelerator, now)
            elif kind == 1:
                while arrive(self.policy, int(sessions[arrived]), 0, arrived, now) == FULL:
                    self.policy = grow(self.policy)
                arrived += 1
            else:
                wake(self.policy, now)
            self._carry_out()

    def _carry_out(self) -> None:
        cluster = self.policy[0]
        for command in cluster.commands[: cluster.board[0].commands]:
            length = cluster.waiting.shape[1]
            slots = [(command["first"] + place) % length for place in range(command["count"])]
            waiting = cluster.waiting[command["queue"]]
            numbers = tuple(int(waiting[slot]["number"]) for slot in slots)
            arrivals = [float(waiting[slot]["arrival"]) for slot in slots]
            assert not set(numbers) & set(self.requests), "answered twice"
            session = int(command["session"])
            if command["kind"] == DISPATCH:
                start, answer = self._execute(command, numbers, arrivals[-1])
                answers = [Request(session, arrival, start, answer) for arrival in arrivals]
            else:
                answers = [Request(session, arrival) for arrival in arrivals]
            self.requests.update(zip(numbers, answers, strict=True))

    def _execute(self, command: Any, numbers: tuple[int, ...], newest: float) -> tuple[float, float]:
        draw = len(self.batches)
        accelerator, session = int(command["accelerator"]), int(command["session"])
        kind = int(self.policy[0].accelerators[accelerator]["kind"])
        control, data = self.control[draw % len(self.control)], self.data[draw % len(self.data)]
        there = self.now + control + data * len(numbers)
        if int(self.policy[0].queues[int(command["queue"])]["accelerator"]) >= 0:
            there = newest + control + data  # sent to the accelerator's own queue when it arrived
        start = max(float(command["start"]), there, self.busy_until.get(accelerator, 0.0))
        believed = float(self.policy[0].latency[kind, session, len(numbers)])
        end = start + believed * self.factor[draw % len(self.factor)]
        self.batches.append(Batch(session, accelerator, start, end, numbers))
        self.busy_until[accelerator] = end
        heapq.heappush(self.outstanding, (end, accelerator))
        return start, end + self.response[draw % len(self.response)]
