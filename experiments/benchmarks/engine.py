"""Requests simulated per second by the cluster engine, beside SimPy and plain Python on the same scenario.

Everything is measured on one core, one after the other, in one process, by the time on that core. The
engine's time includes drawing the arrivals and all statistics; the rivals are given the arrivals and count
good, late and dropped requests. The growth of the cost leaves out the set-up of the
cluster, which stands in the note.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from tuner.cluster import Outcome, Scenario, Simulation, simulate
from tuner.experiments.benchmarks.report import BenchOptions, BenchRow, compared, cpu_seconds, seconds_of
from tuner.experiments.benchmarks.rivals.catalogue import POLICIES, build_plain
from tuner.experiments.benchmarks.rivals.plain import PlainPolicy, simulate_plain
from tuner.experiments.benchmarks.rivals.simpy_model import simulate_simpy, simulate_simpy_callbacks
from tuner.experiments.benchmarks.scenarios import SIZES, arrivals, cluster, grid

__all__ = ["run"]

REQUESTS = {"1 x 8": 20_000_000, "37 x 64": 8_000_000, "20 x 512": 6_000_000}
RIVAL_REQUESTS = 60_000
GROWTH = ((1, 10), (10, 100), (100, 1000), (300, 3000), (1000, 10_000))  # sessions, accelerators
GROWTH_REQUESTS = 3_000_000
MEMORY_REQUESTS = (500_000, 5_000_000)
QUICK = 100
"""By which a quick run divides the number of requests."""

Rival = Callable[[PlainPolicy, Sequence[float], Sequence[int]], object]


def run(options: BenchOptions) -> list[BenchRow]:
    """Measure everything; ``options.repeats`` is how often."""
    cut = QUICK if options.quick else 1
    repeats = min(options.repeats, 2) if options.quick else options.repeats
    tasks = [
        *((_against_rivals, size, policy) for policy in POLICIES for size in SIZES),
        *((_growth, policy, "") for policy in POLICIES),
        (_memory, "symphony", ""),
    ]
    rows: list[BenchRow] = []
    for measure, first, second in options.track(tasks, "scenarios"):
        rows += measure(first, second, cut, repeats)
    return rows


def _against_rivals(size: str, policy: str, cut: int, repeats: int) -> Iterator[BenchRow]:
    """One size and policy, compiled and not."""
    requests = REQUESTS[size] // cut
    scenario = cluster(size, policy, requests)
    outcomes: list[Outcome] = []
    speed = requests / seconds_of(lambda: outcomes.append(simulate(scenario)), repeats)
    note = f"batches of {_mean_batch(outcomes[0]):.1f}, bad rate {outcomes[0].bad_rate:.2%}"
    few = max(RIVAL_REQUESTS // cut, 5000)
    rivals: tuple[tuple[str, Rival], ...] = (
        ("SimPy", simulate_simpy),
        ("SimPy's callbacks", simulate_simpy_callbacks),
        ("plain Python", simulate_plain),
    )
    for name, rival in rivals:
        slow = few / _rival_seconds(rival, size, policy, few, repeats)
        yield compared(
            f"{policy}, {size}, against {name}", speed, slow, "requests/s", note=f"baseline: {name}; {note}"
        )


def _rival_seconds(rival: Rival, size: str, policy: str, requests: int, repeats: int) -> float:
    scenario = cluster(size, policy, requests)
    times, sessions = (part.tolist() for part in arrivals(scenario, requests))
    spec = scenario.cluster_spec()
    return seconds_of(lambda: rival(build_plain(policy, spec), times, sessions), repeats)


def _growth(policy: str, _: str, cut: int, repeats: int) -> Iterator[BenchRow]:
    """Time per request as sessions and accelerators grow together, with the load."""
    requests = GROWTH_REQUESTS // cut
    first = 0.0
    for sessions, accelerators in GROWTH if cut == 1 else GROWTH[:3]:
        scenario = grid(sessions, accelerators, policy, requests)
        simulate(grid(sessions, accelerators, policy, 1000))  # compiles
        setup, running = (median(times) for times in zip(*_parts(scenario, repeats), strict=True))
        nanoseconds = running / requests * 1e9
        first = first or nanoseconds
        logarithm = math.log2(accelerators) / math.log2(GROWTH[0][1])
        yield compared(
            f"{policy}, growth, {sessions} x {accelerators}",
            nanoseconds,
            first,
            "ns/request",
            less=True,
            note=f"baseline: {GROWTH[0][0]} x {GROWTH[0][1]}; "
            f"their logarithm grew {logarithm:.1f} times; set-up {setup * 1e3:.0f} ms",
        )


def _parts(scenario: Scenario, repeats: int) -> Iterator[tuple[float, float]]:
    """Yield how long setting up and running take, s."""
    for _ in range(repeats):
        made: list[Simulation] = []
        setup = cpu_seconds(lambda made=made: made.append(Simulation(scenario)))  # type: ignore[misc]
        yield setup, cpu_seconds(lambda made=made: made[0].advance(scenario.seconds))  # type: ignore[misc]


def _mean_batch(outcome: Outcome) -> float:
    """Return the requests per batch, of all sessions."""
    served = [(one.good + one.late, one.mean_batch) for one in outcome.sessions]
    batches = sum(requests / batch for requests, batch in served if requests and batch)
    return sum(requests for requests, _ in served) / max(batches, 1.0)


def _memory(policy: str, _: str, cut: int, repeats: int) -> Iterator[BenchRow]:  # noqa: ARG001 - as the others
    """Peak memory of a short and of a ten times longer simulation."""
    few, many = (_peak(policy, requests // cut) for requests in MEMORY_REQUESTS)
    note = f"{MEMORY_REQUESTS[1] // cut:,} requests; baseline: a tenth of them"
    yield compared(f"{policy}, 1 x 8, peak memory", many, few, "MB", less=True, note=note)


def _peak(policy: str, requests: int) -> float:
    scenario = cluster("1 x 8", policy, requests)
    simulate(scenario)
    tracemalloc.start()
    try:
        simulate(scenario)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
