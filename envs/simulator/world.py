"""The virtual world around the compiled batcher: time, random arrivals, noise, processors, disturbances."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tuner.adapters.backend import Counters
from tuner.adapters.triton.configuration import DELAY, INSTANCES
from tuner.adapters.triton.configuration import MAX_BATCH_SIZE as MAX_BATCH
from tuner.envs.simulator import batcher
from tuner.envs.simulator.batcher import BatcherArrivals, BatcherState, BatcherTotals, Batching, Machine
from tuner.envs.simulator.server import ServerModel
from tuner.errors import InvalidInput
from tuner.profiler.source import ClientSample, HostReading
from tuner.workload.schedule import ArrivalStream, RateSchedule

__all__ = ["Neighbour", "World", "batching_of", "empty_state", "empty_totals"]

QUEUE = 1 << 16
"""Requests that may wait; further ones are dropped, and counted."""
LOG = 1 << 17
"""Requests whose latency is remembered."""
GRACE = 1.0
"""How long clients wait for outstanding answers after a window, s."""
LOOKS = 20
"""How often they look in this time whether all answers are there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbour:
    """Foreign processes on the server's machine, which may come and go.

    Raises:
        InvalidInput: A value is negative.
    """

    cores: float = 0.0
    """Cores that they use while they are there."""
    period: float = math.inf
    """From one coming to the next, s; they are away for its first half. Infinite: always there."""

    def __post_init__(self) -> None:
        if not (0 <= self.cores < math.inf and self.period > 0):
            problem = f"{self.cores:g} cores every {self.period:g} s are not possible"
            raise InvalidInput("TARGET option foreign", problem, "write foreign=1&period=60")

    def at(self, time: float) -> float:
        """Return the cores that they use at a time, s."""
        away = math.isfinite(self.period) and self._half(time) % 2 == 0
        return 0.0 if away else self.cores

    def next_change(self, time: float) -> float:
        """Return when they come or go next, s; infinite if never."""
        return (self._half(time) + 1) * self.period / 2 if math.isfinite(self.period) else math.inf

    def _half(self, time: float) -> int:
        """Return the number of the half period that a time is in."""
        half = int(time / (self.period / 2))
        return half + ((half + 1) * self.period / 2 <= time)  # the division may round down


class World:
    """One simulated server under one load, from time 0 on.

    Time passes only in :meth:`advance`, and in :meth:`sample` while answers are outstanding.

    Args:
        server: What the server is like.
        schedule: The offered rate.
        seed: Of arrivals and noise; the same seed sees the same arrivals under every configuration.
        largest: The largest batch that will be configured.
        instances: The most instances that will be configured.
        shape: Of the gamma distributed gaps between requests; 1 is Poisson.
    """

    def __init__(
        self,
        server: ServerModel,
        schedule: RateSchedule,
        *,
        seed: int,
        largest: int,
        instances: int,
        shape: float = 1.0,
    ) -> None:
        arrivals, noise = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
        self.server = server
        self.batching = Batching(1, 0.0, 1)
        self.neighbour = Neighbour()
        self.slowdown = 1.0
        """Factor on the execution times; assign to let the machine become slower or faster."""
        self._noise = noise
        self._state = empty_state(largest, 2 * instances)  # old and new instances overlap in a reload
        self._totals = empty_totals(largest)
        self._profile = server.profile_table(largest)
        self._arrival = np.zeros(LOG)  # (LOG,) s by request number modulo LOG
        self._disturbance = (0.0, 0.0)  # cores, until s
        self._others = [0.0, 0.0]  # core-seconds of foreign processes, and of loading
        self._clients = 0
        self._generator, self._shape = arrivals, shape
        self.offer(schedule)

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return float(self._state.clock[0])

    @property
    def rate(self) -> float:
        """The load offered now, requests/s."""
        return self._schedule.rate(self.now - self._since)

    @property
    def totals(self) -> BatcherTotals:
        """What happened so far (live arrays; copy what is kept)."""
        return self._totals

    @property
    def pending(self) -> int:
        """Requests waiting in the queue."""
        return int(self._state.position[batcher.TAIL] - self._state.position[batcher.HEAD])

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + max(seconds, 0.0)
        while self.now < end:
            cores, until = self._disturbance
            change = self._since + self._schedule.next_change(self.now - self._since)
            changes = (change, until, self.neighbour.next_change(self.now))
            stop = min([end, *(time for time in changes if time > self.now)])
            self._advance_evenly(stop, cores if until > self.now else 0.0)

    def offer(self, schedule: RateSchedule) -> None:
        """Offer another load from now on; the schedule's time 0 is now."""
        self._schedule, self._since = schedule, self.now
        self._stream = ArrivalStream(schedule, self._generator, self._shape, self.now)

    def configure(self, batching: Batching, *, fresh: bool) -> None:
        """Change the configuration at this instant; no request is lost.

        Args:
            batching: The new one.
            fresh: Whether new instances take over (a reload), while the old ones finish their batches.
        """
        self.batching = batching._replace(closing=self.server.closing)
        if fresh:
            self._state.position[batcher.EPOCH] += 1

    def disturb(self, cores: float, seconds: float) -> None:
        """Keep further cores busy for a while, as loading a model does."""
        self._disturbance = (cores, self.now + seconds)

    def sample(self, start: float, end: float) -> ClientSample:
        """Return the requests sent in ``[start, end)``; waits up to ``GRACE`` for outstanding answers.

        A request whose place in the log is taken over by a new one meanwhile keeps its last known state.

        Raises:
            InvalidInput: The interval has more requests than are remembered.
        """
        numbers = self._numbers(start, end)
        intended, latency = self._arrival[numbers % LOG], self._state.latency[numbers % LOG]
        for _ in range(LOOKS):
            if not np.isnan(latency).any():
                break
            self.advance(GRACE / LOOKS)
            kept = numbers[numbers >= self._clients - LOG]  # new requests took the places of the others
            latency[numbers.size - kept.size :] = self._state.latency[kept % LOG]
        dropped = np.isinf(latency)
        return ClientSample(
            intended=intended,
            latency=np.where(dropped, np.nan, latency),
            failed=int(dropped.sum()),
            lateness=np.zeros(numbers.size),
        )

    def counters(self) -> Counters:
        """Return the totals since time 0."""
        totals = self._totals
        queue, compute = float(totals.seconds[batcher.QUEUED]), float(totals.seconds[batcher.COMPUTED])
        return Counters(
            time=self.now,
            requests=int(totals.tally[batcher.ANSWERED]),
            failures=int(totals.tally[batcher.DROPPED]),
            latency=queue + compute,
            queue=queue,
            compute=compute,
            inferences=int(totals.tally[batcher.ANSWERED]),
            batch_counts=totals.batch_counts.copy(),
            batch_seconds=totals.batch_seconds.copy(),
            pending=float(self.pending),
        )

    def read(self) -> HostReading:
        """Read processor times."""
        tally, server = self._totals.tally, self.server
        used = (
            float(self._totals.seconds[batcher.BUSY])
            + server.cpu_per_request * int(tally[batcher.ANSWERED])
            + server.cpu_per_batch * int(tally[batcher.EXECUTIONS])
            + self._others[1]
        )
        own = server.client_cpu_per_request * self._clients
        return HostReading(
            time=self.now,
            server=used,
            own=own,
            total=used + own + self._others[0],
            cores=server.cores,
            ran=used,
            waited=float(self._totals.seconds[batcher.WAITED]),
        )

    def _advance_evenly(self, until: float, loading: float) -> None:
        """Let time pass up to a point before which neither the rate nor a disturbance changes."""
        passed = until - self.now
        foreign = self.neighbour.at(self.now)
        front = self.rate * (self.server.cpu_per_request + self.server.client_cpu_per_request)
        machine = Machine(
            self._profile * self.slowdown,
            self.server.gap,
            self.server.contention,
            self.server.cores,
            self.server.threads,
            front + loading + foreign,
        )
        times = self._stream.take(until)
        self._remember(times)
        arrivals = BatcherArrivals(times, *self._draw(times.size), np.ones(times.size))
        batcher.advance(self._state, self._totals, self.batching, machine, arrivals, until)
        self._others[0] += foreign * passed
        self._others[1] += loading * passed

    def _draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw the factor on the execution and the overhead of each request.   # (n,), (n,) s."""
        normal = self._noise.standard_normal((count, 2))
        sigma = np.array([self.server.noise, self.server.overhead_noise])
        factors = np.exp(sigma * normal - sigma**2 / 2)
        return np.ascontiguousarray(factors[:, 0]), self.server.overhead * factors[:, 1]

    def _remember(self, times: np.ndarray) -> None:
        numbers = self._clients + np.arange(times.size)
        self._arrival[numbers % LOG] = times
        self._clients += times.size

    def _numbers(self, start: float, end: float) -> np.ndarray:
        """Return the numbers of the requests sent in ``[start, end)``."""
        oldest = max(self._clients - LOG, 0)
        known = range(oldest, self._clients)
        first, last = (
            bisect_left(known, time, key=lambda number: self._arrival[number % LOG]) for time in (start, end)
        )
        if first == 0 and oldest and self._arrival[oldest % LOG] > start:
            raise InvalidInput("window", f"more than {LOG} requests came in it", "use a shorter one")
        return np.arange(oldest + first, oldest + last)


def batching_of(configuration: Mapping[str, float]) -> Batching:
    """Return what a configuration of Triton's knobs means for the batcher."""
    return Batching(int(configuration[MAX_BATCH]), float(configuration[DELAY]), int(configuration[INSTANCES]))


def empty_state(largest: int, slots: int, *, queue: int = QUEUE, log: int = LOG) -> BatcherState:
    """Return an idle server at time 0.

    Args:
        largest: The largest batch.
        slots: How many batches may be in execution at once.
        queue: Requests that may wait; a power of 2.
        log: Requests whose latency is remembered; a power of 2.
    """
    return BatcherState(
        clock=np.zeros(1),
        position=np.zeros(4, np.int64),
        queue=np.zeros((queue, 4)),
        queue_number=np.zeros(queue, np.int64),
        running=np.zeros((slots, largest, 2)),
        running_number=np.zeros((slots, largest), np.int64),
        size=np.zeros(slots, np.int64),
        epoch=np.zeros(slots, np.int64),
        started=np.zeros(slots),
        remaining=np.zeros(slots),
        gap_share=np.zeros(slots),
        latency=np.full(log, np.nan),
    )


def empty_totals(largest: int) -> BatcherTotals:
    """Return totals before anything has happened."""
    return BatcherTotals(
        tally=np.zeros(4, np.int64),
        seconds=np.zeros(4),
        batch_counts=np.zeros(largest + 1, np.int64),
        batch_seconds=np.zeros(largest + 1),
    )
