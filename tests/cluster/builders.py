"""Small scenarios for tests of the engine: given arrivals, a policy, execution that differs from belief."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tuner.cluster.arrivals import ArrivalProcess
from tuner.cluster.requests import Chunk, RequestStream
from tuner.cluster.simulation import Interval
from tuner.scheduling.batching import eager
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec
from tuner.workload.schedule import RateSchedule

NOTHING = np.empty(0)
NOBODY = np.empty(0, np.int64)
GRID = 2.0**-10
"""Times that are multiples of it add up without rounding, so that events happen at one instant."""


class Arrivals:
    """Requests with given arrivals, in chunks of a given size."""

    def __init__(self, times: np.ndarray, sessions: np.ndarray, chunk: int) -> None:
        self.times, self.sessions, self.chunk = times, sessions, chunk
        self.taken = 0

    def next_chunk(self) -> Chunk:
        first, last = self.taken, min(self.taken + self.chunk, self.times.size)
        while 0 < last < self.times.size and self.times[last] == self.times[last - 1]:
            last += 1
        self.taken = last
        until = float(self.times[last]) if last < self.times.size else np.inf
        sources = np.zeros(last - first, np.int64)
        return Chunk(self.times[first:last].copy(), self.sessions[first:last].copy(), sources, until)


@dataclass(kw_only=True)
class StandIn:
    """A scenario by hand."""

    tables: Sequence[np.ndarray]
    """(K, B+1) s per session."""
    slos: Sequence[float]
    kinds: Sequence[int] = (0,)
    delays: Delays = field(default_factory=Delays)
    build: Callable[[ClusterSpec], Any] = eager.build
    times: np.ndarray = field(default_factory=lambda: NOTHING)
    sessions: np.ndarray = field(default_factory=lambda: NOBODY)
    rate: float | None = None
    """Poisson arrivals of one session instead of given times, requests/s."""
    chunk: int = 64
    seconds: float = 1.0
    warmup_seconds: float = 0.0
    seed: int = 0
    noise: float = 0.0
    network: Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray, np.ndarray]] | None = None

    @property
    def interval(self) -> Interval:
        end = self.warmup_seconds + self.seconds
        return Interval(self.warmup_seconds, end, end)

    def cluster_spec(self) -> ClusterSpec:
        sessions = [
            SessionSpec(name=f"s{index}", slo=slo, latency=table)
            for index, (table, slo) in enumerate(zip(self.tables, self.slos, strict=True))
        ]
        return ClusterSpec(sessions=sessions, kinds=self.kinds, delays=self.delays)

    def make_policy(self) -> Any:
        return self.build(self.cluster_spec())

    def make_requests(self) -> Arrivals | RequestStream:
        if self.rate is not None:
            process = ArrivalProcess(schedule=RateSchedule.constant(self.rate))
            return RequestStream([process], seed=self.seed, chunk=self.chunk)
        return Arrivals(self.times, self.sessions, self.chunk)

    def draw_network(
        self, generator: np.random.Generator, count: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if self.network is not None:
            return self.network(generator, count)
        delays = self.delays
        return np.array([delays.control]), np.array([delays.data]), np.array([delays.response])


def single(latency: float, **kwargs: Any) -> StandIn:
    """One session without batching and without a deadline that matters: a plain queue."""
    return StandIn(tables=[np.array([[0.0, latency]])], slos=[1e6], **kwargs)


def on_grid(seconds: np.ndarray) -> np.ndarray:
    """The nearest multiples of GRID."""
    return np.round(seconds / GRID) * GRID


def jitter(generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A network that is sometimes slower than allowed for."""
    control = on_grid(generator.exponential(0.004, count))
    return control, on_grid(generator.exponential(0.002, count)), on_grid(generator.exponential(0.01, count))


def random_scenario(seed: int, requests: int = 300, **kwargs: Any) -> StandIn:
    """Several sessions on unlike accelerators, overloaded now and then, all times on the grid."""
    generator = np.random.default_rng(seed)
    sessions, kinds = int(generator.integers(1, 5)), int(generator.integers(1, 3))
    tables = []
    for _ in range(sessions):
        largest = int(generator.integers(1, 9))
        alpha, beta = generator.uniform(0.002, 0.02, (kinds, 1)), generator.uniform(0.01, 0.05, (kinds, 1))
        table = on_grid(alpha * np.arange(largest + 1) + beta)
        table[:, 0] = 0.0
        tables.append(table)
    accelerators = generator.integers(0, kinds, int(generator.integers(1, 6))).tolist()
    gaps = generator.gamma(0.5, generator.uniform(0.005, 0.03), requests)
    scenario = StandIn(
        tables=tables,
        slos=on_grid(generator.uniform(0.1, 0.3, sessions)).tolist(),
        kinds=accelerators,
        delays=Delays(control=4 * GRID, data=2 * GRID, response=8 * GRID),
        times=on_grid(np.cumsum(gaps)),
        sessions=generator.integers(0, sessions, requests),
        seed=seed,
    )
    for name, value in kwargs.items():
        setattr(scenario, name, value)
    return scenario
