"""Compiled: measured windows of servers one after another, each on an empty server after a warm-up.

Requests keep coming until the window ends; then those that are left are answered, so that every request of
the window has a latency, and an overloaded window takes no longer to simulate than another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat
from tuner.envs.simulator.batcher import (
    ANSWERED,
    BUSY,
    COMPUTED,
    EXECUTIONS,
    QUEUED,
    BatcherArrivals,
    BatcherState,
    BatcherTotals,
    Batching,
    Machine,
    advance,
)

DRAINED = 1e15
"""A time by which every request has been answered, s; finite, so that time stays a number."""


class Plans(NamedTuple):
    """What the configurations of a space mean for the batcher: one row each."""

    max_batch: np.ndarray  # (size,) int64
    delay: np.ndarray  # (size,) s
    instances: np.ndarray  # (size,) int64
    closing: np.ndarray  # (size,) share of batches waiting for an instance that take nobody more
    profile: np.ndarray  # (size, B+1) s of work per batch size at full speed; [:, 0] unused
    gap: np.ndarray  # (size,) s an instance is taken per batch beside the execution
    contention: np.ndarray  # (size,) share by which work slows down per further busy core
    switching: np.ndarray  # (size,) share by which work slows down per waiting thread and core
    cores: np.ndarray  # (size,) what executions share: CPU cores, or parts of a GPU
    threads: np.ndarray  # (size,) of them that one execution keeps busy
    front: np.ndarray  # (size,) s of them that each request takes outside executions


class Jobs(NamedTuple):
    """Which windows to simulate."""

    configuration: np.ndarray  # (n,) int64
    rate: np.ndarray  # (n,) requests/s
    row: np.ndarray  # (n,) int64, of the draws


class RequestDraws(NamedTuple):
    """The randomness of each seed. A table of one column holds for all requests alike."""

    come: np.ndarray  # (m, R) when each request comes, in mean gaps since the beginning
    noise: np.ndarray  # (m, R or 1) factor on the execution
    size: np.ndarray  # (m, R or 1) of the request, 1 is usual
    overhead: np.ndarray  # (m, R or 1) s outside the server


class Span(NamedTuple):
    """When the window begins and ends, s."""

    start: float
    end: float


class Raw(NamedTuple):
    """What the windows showed; all arrays are modified in place."""

    requests: np.ndarray  # (n,) int64, that came in the window; all are answered
    mean: np.ndarray  # (n,) s; NaN if nothing came, like all below
    quantiles: np.ndarray  # (n, 3) s: p50, p95, p99
    queue_mean: np.ndarray  # (n,) s
    compute_mean: np.ndarray  # (n,) s
    batch_mean: np.ndarray  # (n,)
    executions: np.ndarray  # (n,) int64, begun in the window
    busy: np.ndarray  # (n,) core-seconds of executions within the window


class Scratch(NamedTuple):
    """Memory that one thread reuses; all arrays are modified in place."""

    state: BatcherState  # its rings hold every request of a window
    totals: BatcherTotals
    come: np.ndarray  # (R,) s
    noise: np.ndarray  # (R,)
    size: np.ndarray  # (R,)
    overhead: np.ndarray  # (R,) s
    latency: np.ndarray  # (R,) s


@njit_flat
def measure_windows(  # noqa: PLR0917 - a kernel has no keywords
    scratch: Scratch, plans: Plans, jobs: Jobs, draws: RequestDraws, span: Span, raw: Raw
) -> None:
    """Simulate windows. ``scratch`` and ``raw`` are modified in place."""
    for job in range(jobs.rate.size):
        measure_window(scratch, plans, jobs, draws, span, raw, job)


@njit_flat
def measure_window(  # noqa: PLR0917
    scratch: Scratch, plans: Plans, jobs: Jobs, draws: RequestDraws, span: Span, raw: Raw, job: int
) -> None:
    """Simulate one window. ``scratch`` and ``raw`` are modified in place."""
    state, totals = scratch.state, scratch.totals
    first, count = prepare(scratch, draws, jobs.row[job], jobs.rate[job], span)
    number = jobs.configuration[job]
    batching = Batching(
        plans.max_batch[number], plans.delay[number], plans.instances[number], plans.closing[number]
    )
    machine = Machine(
        plans.profile[number],
        plans.gap[number],
        plans.contention[number],
        plans.cores[number],
        plans.threads[number],
        plans.front[number] * jobs.rate[job],
        plans.switching[number],
    )
    empty(state, totals)
    advance(state, totals, batching, machine, arrivals(scratch, 0, first), span.start)
    begun, busy = totals.tally[EXECUTIONS], totals.seconds[BUSY]
    answered, batches = totals.tally[ANSWERED], totals.batch_counts.sum()
    queued, computed = totals.seconds[QUEUED], totals.seconds[COMPUTED]
    advance(state, totals, batching, machine, arrivals(scratch, first, count), span.end)
    raw.executions[job] = totals.tally[EXECUTIONS] - begun
    raw.busy[job] = totals.seconds[BUSY] - busy
    advance(state, totals, batching, machine, arrivals(scratch, count, count), DRAINED)
    raw.requests[job] = count - first
    latency_statistics(scratch, first, count, raw, job)
    done, batches = totals.tally[ANSWERED] - answered, totals.batch_counts.sum() - batches
    raw.queue_mean[job] = (totals.seconds[QUEUED] - queued) / done if done else np.nan
    raw.compute_mean[job] = (totals.seconds[COMPUTED] - computed) / done if done else np.nan
    raw.batch_mean[job] = done / batches if done else np.nan


@njit_flat
def prepare(scratch: Scratch, draws: RequestDraws, row: int, rate: float, span: Span) -> tuple[int, int]:
    """Fill in the requests that come until the end. ``scratch`` is modified in place.

    Returns:
        The number of the first request of the window, and how many come in all.
    """
    first, count = 0, 0
    for request in range(draws.come.shape[1]):
        time = draws.come[row, request] / rate
        if time > span.end:
            break
        if time <= span.start:
            first += 1
        scratch.come[request] = time
        count += 1
    spread(scratch.noise, draws.noise, row, count)
    spread(scratch.size, draws.size, row, count)
    spread(scratch.overhead, draws.overhead, row, count)
    return first, count


@njit_flat
def spread(target: np.ndarray, table: np.ndarray, row: int, count: int) -> None:
    """Copy a row of a table of one or of all columns. ``target`` is modified in place."""
    last = table.shape[1] - 1
    for request in range(count):
        target[request] = table[row, min(request, last)]


@njit_flat
def arrivals(scratch: Scratch, first: int, end: int) -> BatcherArrivals:
    """Return the requests of numbers ``first`` to before ``end``."""
    part = slice(first, end)
    return BatcherArrivals(
        scratch.come[part], scratch.noise[part], scratch.overhead[part], scratch.size[part]
    )


@njit_flat
def empty(state: BatcherState, totals: BatcherTotals) -> None:
    """Stand at time 0 with nothing to do. ``state`` and ``totals`` are modified in place."""
    state.clock[0] = 0.0
    state.position[:] = 0
    state.size[:] = 0
    state.started[:] = 0.0
    totals.tally[:] = 0
    totals.seconds[:] = 0.0
    totals.batch_counts[:] = 0
    totals.batch_seconds[:] = 0.0


@njit_flat
def latency_statistics(scratch: Scratch, first: int, count: int, raw: Raw, job: int) -> None:
    """Compute mean and quantiles of the window's requests. ``scratch`` and ``raw`` are modified in place."""
    n = count - first
    if n == 0:
        raw.mean[job] = np.nan
        raw.quantiles[job, :] = np.nan
        return
    ring, total = scratch.state.latency, 0.0
    for number in range(first, count):
        value = ring[number & (ring.size - 1)]
        scratch.latency[number - first] = value
        total += value
    raw.mean[job] = total / n
    raw.quantiles[job, 0] = quantile(scratch.latency, n, 0.5)
    raw.quantiles[job, 1] = quantile(scratch.latency, n, 0.95)
    raw.quantiles[job, 2] = quantile(scratch.latency, n, 0.99)


@njit_flat
def quantile(values: np.ndarray, count: int, share: float) -> float:
    """Return a quantile of the first values, linear between two of them. ``values`` is modified in place."""
    place = share * (count - 1)
    low = int(place)
    below: float = select(values, count, low)
    if low + 1 >= count:
        return below
    above: float = values[low + 1]  # after the selection, the next largest stands somewhere behind
    for index in range(low + 2, count):
        above = min(above, values[index])
    return below + (place - low) * (above - below)


@njit_flat
def select(values: np.ndarray, count: int, rank: int) -> float:
    """Return the value of a rank (0 the least) by Hoare's quickselect.

    ``values`` is modified in place: none before the rank is larger, none behind it smaller.
    """
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        pivot = max(min(values[low], values[middle]), min(max(values[low], values[middle]), values[high]))
        left, right = low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if rank <= right:
            high = right
        elif rank >= left:
            low = left
        else:
            break
    return float(values[rank])
