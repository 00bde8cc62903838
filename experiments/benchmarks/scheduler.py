"""A policy alone: requests scheduled per second, with no network, no statistics and nothing executed.

As Symphony measures its scheduler (Figure 11, left): requests and accelerators are objects in the process.
The arrivals are drawn beforehand. With several threads, each schedules a sub-cluster of its own (4.7).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

from tuner.cluster.scenario import Scenario
from tuner.experiments.benchmarks.drive import Belt, drive, make_belt
from tuner.experiments.benchmarks.report import BenchOptions, BenchRow, compared, cpu_seconds, seconds_of
from tuner.experiments.benchmarks.rivals.catalogue import POLICIES, build_plain
from tuner.experiments.benchmarks.rivals.plain import simulate_plain
from tuner.experiments.benchmarks.scenarios import SIZES, arrivals, cluster, grid
from tuner.laboratory.parallel import cores
from tuner.scheduling.cluster import grow
from tuner.scheduling.vocabulary import FULL, OK

__all__ = ["Alone", "run", "seconds_alone", "seconds_together", "thread_counts"]

REQUESTS = 4_000_000
RIVAL_REQUESTS = 60_000
GROWTH = ((1, 100), (10, 100), (100, 100), (1000, 100), (10, 10), (10, 1000), (10, 10_000))
"""Sessions x accelerators: first the one grows, then the other."""
QUICK = 100


class Alone:
    """A policy in memory and its arrivals; a call schedules them all, once."""

    def __init__(self, scenario: Scenario, count: int) -> None:
        self.time, self.session = arrivals(scenario, count)
        self.policy: Any = scenario.make_policy()
        self.belt: Belt = make_belt(self.policy.cluster.accelerators.size)

    def __call__(self) -> None:
        """Schedule all requests."""
        status = drive(self.policy, self.belt, self.time, self.session)
        while status == FULL:
            self.policy = grow(self.policy)
            status = drive(self.policy, self.belt, self.time, self.session)
        assert status == OK, f"an accelerator was sent too much in advance: {status}"


def run(options: BenchOptions) -> list[BenchRow]:
    """Measure everything; ``options.repeats`` is how often."""
    cut = QUICK if options.quick else 1
    repeats = min(options.repeats, 2) if options.quick else options.repeats
    parts: list[Callable[[str, int, int], Iterator[BenchRow]]] = [_one_core, _threads, _growth]
    tasks = [(part, policy) for policy in POLICIES for part in parts]
    rows: list[BenchRow] = []
    for part, policy in options.track(tasks, "measurements"):
        rows += part(policy, REQUESTS // cut, repeats)
    return rows


def _one_core(policy: str, requests: int, repeats: int) -> Iterator[BenchRow]:
    for size in SIZES:
        scenario = cluster(size, policy, requests)
        speed = requests / seconds_alone(scenario, requests, repeats)
        few = max(RIVAL_REQUESTS * requests // REQUESTS, 1000)
        times, sessions = (part.tolist() for part in arrivals(scenario, few))
        spec = scenario.cluster_spec()

        def rival(spec: Any = spec, times: Any = times, sessions: Any = sessions) -> None:
            simulate_plain(build_plain(policy, spec), times, sessions)

        slow = few / seconds_of(rival, repeats)
        yield compared(
            f"{policy}, {size}", speed, slow, "requests/s", note="one core; baseline: plain Python"
        )


def _threads(policy: str, requests: int, repeats: int) -> Iterator[BenchRow]:
    """Independent sub-clusters in threads: the compiled functions do not hold the interpreter's lock."""
    scenario, one = cluster("37 x 64", policy, requests), 0.0
    for threads in thread_counts():
        measured = sorted(seconds_together(scenario, requests, threads) for _ in range(repeats))
        passed, had = measured[(repeats - 1) // 2]
        speed = threads * requests / passed
        one = one or speed
        name = f"{policy}, {threads} thread{'s' * (threads > 1)}"
        note = f"37 x 64 each, by the clock; had {had:.2f} of {cores()} cores; baseline: 1 thread"
        yield compared(name, speed, one, "requests/s", note=note)


def _growth(policy: str, requests: int, repeats: int) -> Iterator[BenchRow]:
    base = 0.0
    for sessions, accelerators in GROWTH:
        scenario = grid(sessions, accelerators, policy, requests)
        nanoseconds = seconds_alone(scenario, requests, repeats) / requests * 1e9
        base = base or nanoseconds
        name = f"{policy}, growth, {sessions} x {accelerators}"
        note = f"baseline: {GROWTH[0][0]} x {GROWTH[0][1]}"
        yield compared(name, nanoseconds, base, "ns/request", less=True, note=note)


def thread_counts() -> list[int]:
    """Return how many threads are tried: 1, 2, 4 ... up to the cores, and 2 in any case."""
    counts = [1, 2]
    while counts[-1] * 2 <= cores():
        counts.append(counts[-1] * 2)
    return counts


def seconds_alone(scenario: Scenario, requests: int, repeats: int) -> float:
    """Return the median time on its core in which one thread schedules a number of requests, s."""
    few = Alone(scenario, 1000)
    few()  # compiles
    return median(cpu_seconds(Alone(scenario, requests)) for _ in range(repeats))


def seconds_together(scenario: Scenario, requests: int, threads: int) -> tuple[float, float]:
    """Let every thread schedule a number of requests of its own.

    Returns:
        s that pass until the last is done; how many cores they had in this time, which is less than there
        are threads where other processes want them, too.
    """
    few = Alone(scenario, 1000)
    few()  # compiles
    clusters = [Alone(scenario, requests) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        begin, used = time.perf_counter(), time.process_time()
        for done in [pool.submit(one) for one in clusters]:
            done.result()
        passed = time.perf_counter() - begin
        return passed, (time.process_time() - used) / passed
