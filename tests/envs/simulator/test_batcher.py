"""Tests of the compiled dynamic batcher against its plain twin, closed forms and hand-made traces."""

from __future__ import annotations

import numpy as np
import pytest

from tests.naive import NaiveBatcher
from tuner.envs.simulator import batcher
from tuner.envs.simulator.batcher import (
    BatcherArrivals,
    BatcherState,
    BatcherTotals,
    Batching,
    Machine,
    advance,
)
from tuner.envs.simulator.world import empty_totals


def empty(
    *, largest: int = 8, slots: int = 4, capacity: int = 1 << 12, log: int = 1 << 14
) -> tuple[BatcherState, BatcherTotals]:
    state = BatcherState(
        clock=np.zeros(1),
        position=np.zeros(4, np.int64),
        queue=np.zeros((capacity, 4)),
        queue_number=np.zeros(capacity, np.int64),
        running=np.zeros((slots, largest, 2)),
        running_number=np.zeros((slots, largest), np.int64),
        size=np.zeros(slots, np.int64),
        epoch=np.zeros(slots, np.int64),
        started=np.zeros(slots),
        remaining=np.zeros(slots),
        gap_share=np.zeros(slots),
        latency=np.full(log, np.nan),
    )
    totals = empty_totals(largest)
    return state, totals


def machine(
    alpha: float = 0.0,
    beta: float = 1.0,
    *,
    largest: int = 8,
    gap: float = 0.0,
    contention: float = 0.0,
    cores: float = 64.0,
    background: float = 0.0,
    switching: float = 0.0,
) -> Machine:
    profile = alpha * np.arange(largest + 1) + beta
    return Machine(profile, gap, contention, cores, 1.0, background, switching)


def at(times: list[float] | np.ndarray) -> BatcherArrivals:
    times = np.array(times, dtype=float)
    return BatcherArrivals(times, np.ones(times.size), np.zeros(times.size), np.ones(times.size))


def finish_times(batching: Batching, executing: Machine, times: list[float]) -> list[float]:
    state, totals = empty()
    advance(state, totals, batching, executing, at(times), 1000.0)
    return [round(float(time + latency), 9) for time, latency in zip(times, state.latency, strict=False)]


def test_one_by_one() -> None:
    """With max_batch 1 requests are served one after another, whatever the delay."""
    finished = finish_times(Batching(1, 5.0, 1), machine(), [0.0, 0.5, 3.0, 3.1, 3.2])

    assert finished == [1.0, 2.0, 4.0, 5.0, 6.0]


def test_batches_what_waits() -> None:
    """Without a delay an idle instance takes what is queued: the first alone, the rest together."""
    finished = finish_times(Batching(4, 0.0, 1), machine(alpha=1.0), [0.0, 0.5, 0.6, 0.7, 2.5])

    assert finished == [2.0, 6.0, 6.0, 6.0, 8.0]


def test_delay() -> None:
    """The oldest request waits for the delay, or until the batch is full."""
    executing = machine(alpha=0.0, beta=0.1)

    assert finish_times(Batching(3, 1.0, 1), executing, [0.0, 0.5, 5.0, 5.2, 5.4]) == [
        1.1,
        1.1,
        5.5,
        5.5,
        5.5,
    ]


def test_delay_passed_while_busy() -> None:
    """A request whose delay passed while the instance was busy starts as soon as that is idle."""
    assert finish_times(Batching(2, 1.0, 1), machine(beta=3.0), [0.0, 0.0, 0.5, 10.0]) == [
        3.0,
        3.0,
        6.0,
        14.0,
    ]


def test_two_instances() -> None:
    """Requests go to whichever instance is idle."""
    assert finish_times(Batching(1, 0.0, 2), machine(), [0.0, 0.2, 0.3, 0.4]) == [1.0, 1.2, 2.0, 2.2]


def test_contention() -> None:
    """Two executions at once both slow down by the contention, one alone does not."""
    finished = finish_times(Batching(1, 0.0, 2), machine(contention=0.25), [0.0, 0.0, 10.0])

    assert finished == [1.25, 1.25, 11.0]


def test_more_instances_than_cores() -> None:
    """Beyond the cores time is shared: two executions on one core take twice as long."""
    state, totals = empty()

    advance(state, totals, Batching(1, 0.0, 2), machine(cores=1.0), at([0.0, 0.0]), 10.0)

    assert state.latency[:2] == pytest.approx([2.0, 2.0])
    assert totals.seconds[batcher.BUSY] == pytest.approx(2.0)


def test_background_takes_cores() -> None:
    """A busy core of somebody else slows the only core down to half."""
    finished = finish_times(Batching(1, 0.0, 1), machine(cores=1.0, background=1.0), [0.0])

    assert finished == [2.0]


def test_reload_keeps_requests() -> None:
    """After a reload the old instance finishes its batch while a new one already works; nothing is lost."""
    state, totals = empty()
    advance(state, totals, Batching(1, 0.0, 1), machine(), at([0.0, 0.1, 0.2]), 0.5)
    state.position[batcher.EPOCH] += 1

    advance(state, totals, Batching(2, 0.0, 1), machine(), at([]), 10.0)

    assert state.latency[:3] == pytest.approx([1.0, 1.4, 1.3])


def test_a_closed_batch_takes_nobody_more() -> None:
    """While it waits for the instance, a closed batch holds those that came before its delay ran out."""
    times = [0.0, 0.1, 0.3, 0.45, 0.9]
    executing = machine()  # a second per batch

    open_ones = finish_times(Batching(8, 0.2, 1), executing, times)
    closed_ones = finish_times(Batching(8, 0.2, 1, closing=1.0), executing, times)

    assert open_ones == pytest.approx([1.2, 1.2, 2.2, 2.2, 2.2])  # runs from 0.2, then all that wait
    # The second is complete at 0.3 + 0.2, the third begins with what came after that.
    assert closed_ones == pytest.approx([1.2, 1.2, 2.2, 2.2, 3.2])


def test_a_closed_batch_is_filled_by_enough_for_another() -> None:
    """Requests that fill a batch by themselves wake the batcher."""
    times = [0.0, 0.3, 0.6, 0.7, 0.8]

    finished = finish_times(Batching(2, 0.2, 1, closing=1.0), machine(), times)

    # The second, closed at 0.5 with one in it, takes one of the three that came later.
    assert finished == pytest.approx([1.2, 2.2, 2.2, 3.2, 3.2])


def test_full_queue_drops_and_counts() -> None:
    """A request that finds the ring full is dropped, counted and marked."""
    state, totals = empty(capacity=4)

    advance(state, totals, Batching(1, 0.0, 1), machine(), at(np.arange(8) * 0.01), 100.0)

    assert totals.tally.tolist() == [8, 5, 3, 5]
    assert np.isinf(state.latency[:8]).tolist() == [False] * 5 + [True] * 3


@pytest.mark.parametrize("seed", range(12))
def test_equals_naive(seed: int) -> None:
    """The kernel equals its plain twin on random input cut into windows with changing configurations."""
    generator = np.random.default_rng(seed)
    state, totals = empty(slots=6, capacity=64)
    naive = NaiveBatcher(slots=6, capacity=64)
    for _ in range(6):
        end = float(state.clock[0] + generator.uniform(0.05, 0.4))
        times = np.sort(generator.uniform(float(state.clock[0]), end, int(generator.integers(0, 150))))
        arrivals = BatcherArrivals(
            times,
            generator.lognormal(0.0, 0.3, times.size),
            generator.lognormal(-7.0, 0.3, times.size),
            generator.lognormal(0.0, 0.5, times.size),
        )
        delay = float(generator.choice([0.0, 0.001, 0.02]))
        closing = float(generator.choice([0.0, 0.5, 1.0]))
        batching = Batching(
            int(generator.choice([1, 2, 4, 8])), delay, int(generator.integers(1, 4)), closing
        )
        executing = machine(
            0.0005, 0.004, gap=0.0002, contention=0.1, cores=2.0, background=0.3, switching=0.4
        )
        advance(state, totals, batching, executing, arrivals, end)
        naive.advance(batching, executing, list(zip(*arrivals, strict=True)), end)
        fresh = int(generator.integers(0, 2))
        state.position[batcher.EPOCH] += fresh
        naive.generation += fresh

    counts, seconds = np.zeros(9, np.int64), np.zeros(9)
    for size, executed in naive.executions:
        counts[size] += 1
        seconds[size] += executed
    latency = [naive.latency.get(number, np.nan) for number in range(naive.arrived)]
    assert totals.tally[:3].tolist() == [
        naive.arrived,
        sum(n * b for b, n in enumerate(counts)),
        naive.dropped,
    ]
    assert totals.batch_counts.tolist() == counts.tolist()
    assert np.allclose(totals.batch_seconds, seconds, rtol=1e-9, atol=0)
    spent = [naive.queued, naive.computed, naive.busy_seconds, naive.waited_seconds]
    assert np.allclose(totals.seconds, spent, rtol=1e-9, atol=1e-12)
    assert np.allclose(state.latency[: naive.arrived], latency, rtol=1e-9, atol=0, equal_nan=True)


def poisson(rate: float, count: int, seed: int) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate, count))


def queueing_mean(executing: Machine, times: np.ndarray, noise: np.ndarray, instances: int = 1) -> float:
    state, totals = empty(log=1 << 10)
    arrivals = BatcherArrivals(times, noise, np.zeros(times.size), np.ones(times.size))
    advance(state, totals, Batching(1, 0.0, instances), executing, arrivals, float(times[-1]) + 100.0)
    return float(totals.seconds[batcher.QUEUED] / totals.tally[batcher.ANSWERED])


def test_m_d_1() -> None:
    """Constant service: the mean wait is rho / (2 mu (1 - rho)) (Pollaczek and Khinchine)."""
    times = poisson(0.7, 40_000, 1)

    mean = queueing_mean(machine(), times, np.ones(times.size))

    assert mean == pytest.approx(0.7 / (2 * 0.3), rel=0.05)


def test_m_m_1() -> None:
    """Exponential service: the mean wait is rho / (mu (1 - rho))."""
    times = poisson(0.6, 40_000, 2)

    mean = queueing_mean(machine(), times, np.random.default_rng(3).exponential(1.0, times.size))

    assert mean == pytest.approx(0.6 / 0.4, rel=0.06)


@pytest.mark.compiled
def test_m_m_2() -> None:
    """Two instances with exponential service follow Erlang C."""
    times, a = poisson(1.2, 100_000, 0), 1.2
    waiting = (a**2 / 2 * 2 / (2 - a)) / (1 + a + a**2 / 2 * 2 / (2 - a))

    mean = queueing_mean(machine(), times, np.random.default_rng(5).exponential(1.0, times.size), instances=2)

    assert mean == pytest.approx(waiting / (2 - a), rel=0.05)


def test_little() -> None:
    """Requests in the system, seen at random times, equal rate times mean time in it (Little's law)."""
    state, totals = empty(log=1 << 16)
    times = poisson(100.0, 40_000, 6)
    executing, batching = machine(0.001, 0.01), Batching(8, 0.005, 1)
    seen, begin = [], 0
    looks = np.sort(np.random.default_rng(7).uniform(0.0, times[-1], 2000))
    for look in looks:
        end = int(np.searchsorted(times, look, side="right"))
        advance(state, totals, batching, executing, at(times[begin:end]), float(look))
        seen.append(int(totals.tally[batcher.ARRIVED] - totals.tally[batcher.ANSWERED]))
        begin = end

    latency = state.latency[:begin]
    assert np.mean(seen) == pytest.approx(100.0 * np.nanmean(latency), rel=0.05)
