"""The batched simulator: compiled code measures one window of each of many independent servers at a time."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from tuner.envs.simulator.batcher import BatcherState, BatcherTotals
from tuner.envs.simulator.window import Jobs, Plans, Raw, RequestDraws, Scratch, Span, measure_windows
from tuner.envs.simulator.world import empty_state, empty_totals
from tuner.errors import InvalidInput
from tuner.workload.schedule import fill_gaps

__all__ = ["BatchedSimulator", "Plans", "Traffic", "WindowArrays", "draw", "make_plans"]

BLOCK = 256
"""Requests whose randomness is drawn at a time. The number is fixed, so that what a request gets depends
neither on the rate nor on the length of the window."""
CHUNK = 32
"""Windows that a thread draws for and simulates at a time."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What requests are like, and what they cost outside executions.

    Raises:
        InvalidInput: A value is out of its range.
    """

    noise: float = 0.0
    """Sigma of the lognormal factor (of mean 1) on each execution."""
    sizes: float = 0.0
    """Sigma of the lognormal size (of mean 1) of each request; a batch takes as long as its largest asks."""
    overhead: float = 0.0
    """Mean seconds per request outside the server."""
    overhead_noise: float = 0.0
    """Sigma of the lognormal factor (of mean 1) on it."""
    burstiness: float = 1.0
    """Shape of the gamma distributed gaps: 1 Poisson, below 1 bursts, infinite constant gaps."""
    warm_up: float = 0.0
    """Seconds before the window, not measured."""
    cpu_per_request: float = 0.0
    """Core-seconds per request outside executions."""
    cpu_per_batch: float = 0.0
    """Core-seconds per batch outside executions."""
    on_gpu: bool = False
    """Whether executions use a GPU rather than cores."""

    def __post_init__(self) -> None:
        for name in ("noise", "sizes", "overhead", "overhead_noise", "warm_up"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidInput(name, f"{getattr(self, name)} is not a finite number >= 0")
        if not self.burstiness > 0:
            raise InvalidInput("burstiness", f"{self.burstiness} is not positive", "1 is Poisson")

    @classmethod
    def of(cls, server: object, **others: Any) -> Traffic:
        """Return the traffic of a server model: its fields of the same names, and the others given."""
        own = {name: getattr(server, name) for field in fields(cls) if hasattr(server, name := field.name)}
        return cls(**own | others)


class WindowArrays(NamedTuple):
    """What one window of each server showed. All (n,)."""

    seconds: np.ndarray  # s
    requests: np.ndarray  # int64, that came in the window and were answered
    failures: np.ndarray  # int64, always 0: every request is answered in the end
    rate: np.ndarray  # requests/s that came
    mean: np.ndarray  # s, latency; NaN if nothing came
    p50: np.ndarray  # s
    p95: np.ndarray  # s
    p99: np.ndarray  # s
    queue_mean: np.ndarray  # s
    compute_mean: np.ndarray  # s
    batch_mean: np.ndarray  # requests per execution
    cpu: np.ndarray  # cores in use by the server
    gpu: np.ndarray  # share of the GPU's time in use; NaN without one


class BatchedSimulator:
    """Simulates servers of one model, many at a time. Each window begins with an empty server and a warm-up.

    A window depends on its configuration, its rate, its seed and the arguments below alone. The same seed
    gives the same arrivals under every configuration, and windows may be repeated, left out or run in any
    order.

    Args:
        plans: What each configuration means for the batcher.
        traffic: What requests are like.
        workers: Threads to simulate in; None: as many as there are cores.

    Raises:
        InvalidInput: A plan makes no sense.
    """

    def __init__(self, plans: Plans, traffic: Traffic, *, workers: int | None = None) -> None:
        _check(plans)
        self.plans = plans
        self.traffic = traffic
        self._workers = workers or len(os.sched_getaffinity(0))
        self._scratch: list[Scratch] = []  # of threads that have none in use
        self._pool: ThreadPoolExecutor | None = None

    @property
    def size(self) -> int:
        """How many configurations there are."""
        return int(self.plans.delay.size)

    def step(
        self, configurations: np.ndarray, rates: np.ndarray, seeds: np.ndarray, seconds: float
    ) -> WindowArrays:
        """Measure one window of each server.

        Args:
            configurations: Numbers of the configurations.   # (n,) int64
            rates: Offered load, requests/s.   # (n,)
            seeds: Of the windows.   # (n,) uint64
            seconds: Length of the windows.

        Raises:
            InvalidInput: Shapes differ, a configuration does not exist, or a rate or length is not positive.
        """
        jobs = self._jobs(configurations, rates, seconds)
        seeds = np.asarray(seeds, np.uint64)
        raw = _empty_raw(jobs.rate.size)
        if seeds.shape != jobs.rate.shape:
            raise InvalidInput("seeds", f"{seeds.shape} are given for {jobs.rate.shape} servers")
        span = Span(self.traffic.warm_up, self.traffic.warm_up + float(seconds))
        parts = list(_parts(jobs.rate.size, self._workers))
        if len(parts) == 1 or self._workers == 1:
            for part in parts:
                self._run(jobs, seeds, span, raw, part)
        else:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._workers, "batched-simulator")
            list(self._pool.map(lambda part: self._run(jobs, seeds, span, raw, part), parts))
        return self._arrays(jobs, raw, float(seconds))

    def close(self) -> None:
        """End the threads. May be called twice; a later step starts them again."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _jobs(self, configurations: np.ndarray, rates: np.ndarray, seconds: float) -> Jobs:
        numbers, rates = np.asarray(configurations, np.int64), np.asarray(rates, np.float64)
        if numbers.ndim != 1 or numbers.shape != rates.shape:
            raise InvalidInput("configurations", f"{numbers.shape} are given for {rates.shape} rates")
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < self.size:
            raise InvalidInput("configurations", f"a number is outside 0..{self.size - 1}")
        if not (np.isfinite(rates) & (rates > 0)).all():
            raise InvalidInput("rates", "one is not a positive number of requests/s")
        if not 0 < seconds < math.inf:
            raise InvalidInput("window", f"{seconds} is not a positive number of seconds")
        return Jobs(numbers, rates, np.zeros(numbers.size, np.int64))

    def _run(self, jobs: Jobs, seeds: np.ndarray, span: Span, raw: Raw, part: slice) -> None:
        """Draw for and simulate some windows. ``raw`` is modified in place."""
        unique, row = np.unique(seeds[part], return_inverse=True)
        most = float(jobs.rate[part].max()) * span.end
        draws = draw(unique, most, self.traffic)
        scratch = self._take_scratch(draws.come.shape[1])
        mine = Jobs(jobs.configuration[part], jobs.rate[part], row.astype(np.int64))
        measure_windows(scratch, self.plans, mine, draws, span, Raw(*(array[part] for array in raw)))
        self._scratch.append(scratch)

    def _take_scratch(self, requests: int) -> Scratch:
        """Return memory for a number of requests, in use by no other thread."""
        while self._scratch:
            scratch = self._scratch.pop()  # atomic: threads never get the same
            if scratch.come.size >= requests:
                return scratch
        ring = 1 << (requests - 1).bit_length()
        largest, slots = self.plans.profile.shape[1] - 1, int(self.plans.instances.max())
        state: BatcherState = empty_state(largest, slots, queue=ring, log=ring)
        totals: BatcherTotals = empty_totals(largest)
        return Scratch(state, totals, *(np.empty(ring) for _ in range(5)))

    def _arrays(self, jobs: Jobs, raw: Raw, seconds: float) -> WindowArrays:
        count, traffic = jobs.rate.size, self.traffic
        outside = raw.requests * traffic.cpu_per_request + raw.executions * traffic.cpu_per_batch
        cores = self.plans.cores[jobs.configuration]
        return WindowArrays(
            seconds=np.full(count, seconds),
            requests=raw.requests,
            failures=np.zeros(count, np.int64),
            rate=raw.requests / seconds,
            mean=raw.mean,
            p50=raw.quantiles[:, 0],
            p95=raw.quantiles[:, 1],
            p99=raw.quantiles[:, 2],
            queue_mean=raw.queue_mean,
            compute_mean=raw.compute_mean,
            batch_mean=raw.batch_mean,
            cpu=(outside if traffic.on_gpu else outside + raw.busy) / seconds,
            gpu=raw.busy / cores / seconds if traffic.on_gpu else np.full(count, np.nan),
        )


def make_plans(size: int, **columns: float | np.ndarray) -> Plans:
    """Return the plans of a space.

    Args:
        size: Number of configurations.
        columns: Fields of :class:`Plans`. A number holds for all configurations; a missing field is 0.
    """
    numbers: dict[str, float | np.ndarray] = dict.fromkeys(Plans._fields, 0.0)
    filled = {
        name: column if isinstance(column, np.ndarray) else np.full(size, float(column))
        for name, column in (numbers | columns).items()
    }
    return Plans(**filled)


def _check(plans: Plans) -> None:
    size = plans.delay.shape
    for name, array in zip(Plans._fields, plans, strict=True):
        if array.shape[:1] != size or not np.isfinite(array).all() or (array < 0).any():
            raise InvalidInput(
                f"plans {name}", "there is a value missing, or one that is not finite and >= 0"
            )
    if plans.profile.shape[1] <= plans.max_batch.max() or not (plans.profile[:, 1:] > 0).all():
        raise InvalidInput("plans profile", "a batch size has no positive execution time")
    if min(plans.max_batch.min(), plans.instances.min(), plans.cores.min(), plans.threads.min()) <= 0:
        raise InvalidInput("plans", "max_batch, instances, cores and threads must be positive")


def _parts(count: int, workers: int) -> Iterator[slice]:
    """Cut the windows into parts, at least one per thread if there are as many windows."""
    length = max(min(CHUNK, -(-count // workers)), 1)
    for begin in range(0, count, length):
        yield slice(begin, min(begin + length, count))


def draw(seeds: np.ndarray, most: float, traffic: Traffic) -> RequestDraws:
    """Draw what the requests of each seed need, until ``most`` mean gaps have passed."""
    width = BLOCK * math.ceil((most + 6.0 * math.sqrt(most / min(traffic.burstiness, 1.0)) + 1.0) / BLOCK)
    come = np.empty((seeds.size, width))
    tables = [
        np.empty((seeds.size, width if sigma > 0 else 1))
        for sigma in (traffic.noise, traffic.sizes, traffic.overhead_noise)
    ]
    generators = [np.random.Generator(np.random.PCG64(int(seed))) for seed in seeds]
    drawn = 0
    while True:
        for row, generator in enumerate(generators):
            for begin in range(drawn, come.shape[1], BLOCK):
                block = slice(begin, begin + BLOCK)
                fill_gaps(come[row, block], generator, traffic.burstiness)
                for table in tables:
                    if table.shape[1] > 1:
                        generator.standard_normal(out=table[row, block])
        drawn = come.shape[1]
        sums = np.cumsum(come, axis=1)
        if not sums.size or sums[:, -1].min() > most:
            break
        come, tables = _wider(come), [_wider(table) if table.shape[1] > 1 else table for table in tables]
    noise, size, overhead = (
        _lognormal(table, sigma)
        for table, sigma in zip(tables, (traffic.noise, traffic.sizes, traffic.overhead_noise), strict=True)
    )
    return RequestDraws(sums, noise, size, traffic.overhead * overhead)


def _wider(table: np.ndarray) -> np.ndarray:
    """Return the table with one more block of columns, not filled in."""
    return np.concatenate((table, np.empty((table.shape[0], BLOCK))), axis=1)


def _lognormal(normal: np.ndarray, sigma: float) -> np.ndarray:
    """Turn standard normal numbers into lognormal ones of mean 1; ``normal`` is modified in place."""
    if sigma == 0:
        return np.ones_like(normal)
    normal *= sigma
    normal -= sigma**2 / 2
    return np.asarray(np.exp(normal, out=normal))


def _empty_raw(count: int) -> Raw:
    floats = [np.empty(count) for _ in range(5)]
    mean, queue, compute, batch, busy = floats
    whole = [np.empty(count, np.int64) for _ in range(2)]
    return Raw(whole[0], mean, np.empty((count, 3)), queue, compute, batch, whole[1], busy)
