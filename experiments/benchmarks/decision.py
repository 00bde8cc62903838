"""One live decision: how long a call from Python takes that tells the scheduler of a request or an end.

The time per ``Scheduler.arrive`` and per ``finish``, over a stream of requests at the rate of the scenario;
``wake`` is called when its time comes, and not reported. The baseline is the policy in plain Python on the
same events. An empty compiled function called from Python shows what of the time no scheduler can save.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from statistics import median
from typing import Any

from tuner._jit import njit_flat
from tuner.experiments.benchmarks.report import BenchOptions, BenchRow, compared
from tuner.experiments.benchmarks.rivals.catalogue import POLICIES, build_plain
from tuner.experiments.benchmarks.rivals.plain import DROPPED
from tuner.experiments.benchmarks.scenarios import SIZES, arrivals, cluster
from tuner.scheduling.scheduler import Dispatch, Scheduler

__all__ = ["run"]

REQUESTS = 100_000
QUICK = 50


def run(options: BenchOptions) -> list[BenchRow]:
    """Measure everything; ``options.repeats`` is how often."""
    requests = REQUESTS // (QUICK if options.quick else 1)
    tasks = [(policy, size) for policy in POLICIES for size in SIZES]
    rows = [compared("an empty compiled call", _empty_call(requests), None, "us")]
    for policy, size in options.track(tasks, "scenarios"):
        rows += _rows(policy, size, requests, options.repeats)
    return rows


def _rows(policy: str, size: str, requests: int, repeats: int) -> Iterator[BenchRow]:
    scenario = cluster(size, policy, requests)
    times, sessions = (part.tolist() for part in arrivals(scenario, requests))
    spec = scenario.cluster_spec()
    _Live(Scheduler(scenario.make_policy())).tell(times[:1000], sessions[:1000])  # compiles
    live = [_Live(Scheduler(scenario.make_policy())).tell(times, sessions) for _ in range(repeats)]
    plain = [_Plain(build_plain(policy, spec)).tell(times, sessions) for _ in range(repeats)]
    for kind in [kind for kind in ("arrive", "finish") if kind in live[0]]:
        value, rival = (median(times[kind] for times in many) for many in (live, plain))
        yield compared(
            f"{policy}, {size}, {kind}", value, rival, "us", less=True, note="baseline: plain Python"
        )


class _Live:
    """Calls a scheduler at events in the order of time, as an asyncio driver would, and times the calls."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._ends: list[tuple[float, int]] = []  # heap of (end of a batch, accelerator)
        self._seconds = dict.fromkeys(("arrive", "finish", "wake"), 0.0)
        self._calls = dict.fromkeys(self._seconds, 0)

    def tell(self, times: Sequence[float], sessions: Sequence[int]) -> dict[str, float]:
        """Send it all requests; return the time of a call by kind, us."""
        scheduler, ends = self._scheduler, self._ends
        for arrival, session in zip(times, sessions, strict=True):
            while (event := min(ends[0][0] if ends else math.inf, scheduler.wake_at)) < arrival:
                if ends and ends[0][0] == event:
                    self._call("finish", heappop(ends)[1], event)
                else:
                    self._call("wake", event)
            self._call("arrive", session, arrival)
        clock = _clock_seconds()
        return {
            kind: (self._seconds[kind] / calls - clock) * 1e6 for kind, calls in self._calls.items() if calls
        }

    def _call(self, kind: str, *arguments: float) -> None:
        function = getattr(self._scheduler, kind)
        begin = time.perf_counter()
        commands = function(*arguments)
        self._seconds[kind] += time.perf_counter() - begin
        self._calls[kind] += 1
        self._note(commands)

    def _note(self, commands: Any) -> None:
        for command in commands:
            if isinstance(command, Dispatch):
                heappush(self._ends, (command.finish, command.accelerator))


class _Plain(_Live):
    """The same for a policy in plain Python."""

    def _note(self, commands: Any) -> None:  # noqa: ARG002 - they are in `commands`
        for accelerator, end, _, _ in self._scheduler.commands:
            if accelerator != DROPPED:
                heappush(self._ends, (end, accelerator))
        self._scheduler.commands.clear()


def _clock_seconds() -> float:
    """What reading the clock adds to each call, s."""
    begin = time.perf_counter()
    for _ in range(1000):
        time.perf_counter()
    return (time.perf_counter() - begin) / 1000


def _empty_call(calls: int) -> float:
    """Return the time of a call of a compiled function that does nothing, us."""
    _nothing(0, 0, 0.0)
    begin = time.perf_counter()
    for number in range(calls):
        _nothing(0, number, 1.0)
    return (time.perf_counter() - begin) / calls * 1e6


@njit_flat
def _nothing(session: int, number: int, now: float) -> int:  # noqa: ARG001 - as a decision has
    return 0
