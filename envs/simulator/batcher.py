"""Compiled model of one model behind Triton's dynamic batcher: open-loop arrivals, FIFO queue, instances.

Rules. An idle instance takes a batch as soon as the queue holds ``max_batch`` requests, else when the
oldest waiting request has waited ``delay`` (0: at once; ``max_batch`` 1: never a delay). A batch is work
in seconds, times the size of its largest request (the others are padded to it); all running batches share
the cores, so the pace of work changes whenever an instance starts or ends (:func:`core_share`,
:func:`slowdown`). The state carries over from call to call: overload builds up and drains. A reload raises
EPOCH: batches of the old instances finish, and do not count against the new.

Closed batches. When the delay has run out and no instance is idle, a batch waits for one. Those that come
meanwhile join it, or it is closed and they wait for the next (:func:`closed`); then it holds whoever waited
when the delay ran out, or when the batch before was taken. Enough for a whole further batch fill it anyhow.

Events at one instant happen in the order: completion, arrival, end of delay.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat

# Indices into BatcherState.position.
HEAD = 0  # position of the oldest waiting request in the ring, counted without wrapping
TAIL = 1  # position of the next to arrive
EPOCH = 2  # which generation of instances takes new batches
SLOTS = 3  # slots from this one on are all idle

# Columns of BatcherState.queue and BatcherState.running (NOISE and SIZE are used up by then).
ARRIVAL, OVERHEAD, NOISE, SIZE = 0, 1, 2, 3

# Indices into BatcherTotals.tally and BatcherTotals.seconds.
ARRIVED, ANSWERED, DROPPED, EXECUTIONS = 0, 1, 2, 3

GOLDEN = 0.6180339887498949
"""Multiples of it spread evenly over 0..1, modulo 1: which batches are closed needs no randomness."""
QUEUED, COMPUTED, BUSY, WAITED = 0, 1, 2, 3


class Batching(NamedTuple):
    """The configuration."""

    max_batch: int
    delay: float  # s
    instances: int
    closing: float = 0.0  # share of the batches waiting for an instance that take nobody more


class Machine(NamedTuple):
    """What executes the batches."""

    profile: np.ndarray  # (B+1,) s of work per batch size at full speed; profile[0] unused
    gap: float  # s an instance is taken before the execution proper begins, per batch
    contention: float  # share by which work slows down per further busy core
    cores: float
    threads: float  # cores one instance keeps busy
    background: float  # cores in use by everything else
    switching: float = 0.0  # share by which work slows down per waiting thread and core


class BatcherArrivals(NamedTuple):
    """The requests of one call, in order of time."""

    time: np.ndarray  # (n,) s, none before the clock, none after `until`
    noise: np.ndarray  # (n,) factor on the work of the batch that the request heads
    overhead: np.ndarray  # (n,) s on the way, outside the server
    size: np.ndarray  # (n,) factor on the work of every batch that the request is in: its largest counts


class BatcherState(NamedTuple):
    """Everything that carries over; all arrays are modified in place."""

    clock: np.ndarray  # (1,) s
    position: np.ndarray  # (4,) HEAD, TAIL, EPOCH, SLOTS
    queue: np.ndarray  # (Q, 4) ring of ARRIVAL s, OVERHEAD s, NOISE, SIZE; Q is a power of 2
    queue_number: np.ndarray  # (Q,) request numbers of the same ring
    running: np.ndarray  # (I, B, 2) ARRIVAL s, OVERHEAD s of the requests being executed
    running_number: np.ndarray  # (I, B)
    size: np.ndarray  # (I,) requests in the batch being executed, 0 if idle
    epoch: np.ndarray  # (I,) generation of the instance that executes it
    started: np.ndarray  # (I,) s
    remaining: np.ndarray  # (I,) s of work left
    gap_share: np.ndarray  # (I,) share of the work that was gap
    latency: np.ndarray  # (R,) s by request number modulo R, a power of 2; NaN not yet answered, inf dropped


class BatcherTotals(NamedTuple):
    """What happened since the beginning; all arrays are modified in place."""

    tally: np.ndarray  # (4,) ARRIVED, ANSWERED, DROPPED, EXECUTIONS
    seconds: np.ndarray  # (4,) QUEUED and COMPUTED, summed over requests; BUSY and WAITED for a core
    batch_counts: np.ndarray  # (B+1,) executions per batch size
    batch_seconds: np.ndarray  # (B+1,) s in them


@njit_flat
def advance(  # noqa: PLR0917 - a kernel has no keywords
    state: BatcherState,
    totals: BatcherTotals,
    batching: Batching,
    machine: Machine,
    arrivals: BatcherArrivals,
    until: float,
) -> None:
    """Let the server run until a time.

    Args:
        state: Where it stands; modified in place.
        totals: What happened so far; modified in place.
        batching: The configuration in force.
        machine: What executes.
        arrivals: All requests between the clock and ``until``.
        until: s; the clock stands there afterwards.
    """
    arrived = 0
    while True:
        dispatch(state, totals, batching, machine)
        now = state.clock[0]
        busy, slot = executing(state)
        share = core_share(busy, machine)
        pace = share / slowdown(busy, machine)
        finish = now + state.remaining[slot] / pace if slot >= 0 else np.inf
        arrival = arrivals.time[arrived] if arrived < arrivals.time.size else np.inf
        expiry = delay_expiry(state, batching)
        event = min(finish, arrival, expiry)
        if event > until:
            pass_time(state, until, pace)
            account(totals, (until - now) * busy * machine.threads, share)
            return
        pass_time(state, event, pace)
        account(totals, (event - now) * busy * machine.threads, share)
        if finish == event:
            complete(state, totals, slot)
        elif arrival == event:
            admit(state, totals, arrivals, arrived)
            arrived += 1
        # else a delay has expired: the next round dispatches


@njit_flat
def account(totals: BatcherTotals, wanted: float, share: float) -> None:
    """Add the core-seconds that threads wanted, and got a share of. ``totals`` is modified in place."""
    totals.seconds[BUSY] += wanted * share
    totals.seconds[WAITED] += wanted * (1.0 - share)


@njit_flat
def dispatch(state: BatcherState, totals: BatcherTotals, batching: Batching, machine: Machine) -> None:
    """Start every batch that may start now. ``state`` and ``totals`` are modified in place."""
    now = state.clock[0]
    while state.position[HEAD] < state.position[TAIL]:
        waiting = state.position[TAIL] - state.position[HEAD]
        if waiting < batching.max_batch and now < oldest(state) + batching.delay:
            return
        slot = idle_slot(state, batching)
        if slot < 0:
            return
        size = min(waiting, batching.max_batch)
        if batching.delay > 0.0 and closed(state, batching):
            size = size_when_closed(state, batching, size)
        noise = state.queue[state.position[HEAD] & (state.queue.shape[0] - 1), NOISE]
        largest = 0.0
        for i in range(size):
            source = state.position[HEAD] & (state.queue.shape[0] - 1)
            largest = max(largest, state.queue[source, SIZE])
            state.running[slot, i, ARRIVAL] = state.queue[source, ARRIVAL]
            state.running[slot, i, OVERHEAD] = state.queue[source, OVERHEAD]
            state.running_number[slot, i] = state.queue_number[source]
            state.position[HEAD] += 1
        execution = machine.profile[size] * noise * largest
        state.size[slot] = size
        state.position[SLOTS] = max(state.position[SLOTS], slot + 1)
        state.epoch[slot] = state.position[EPOCH]
        state.started[slot] = now
        state.remaining[slot] = machine.gap + execution
        state.gap_share[slot] = machine.gap / (machine.gap + execution)
        totals.tally[EXECUTIONS] += 1


@njit_flat
def oldest(state: BatcherState) -> float:
    """Arrival of the request at the head of a queue that is not empty, s."""
    return float(state.queue[state.position[HEAD] & (state.queue.shape[0] - 1), ARRIVAL])


@njit_flat
def closed(state: BatcherState, batching: Batching) -> bool:
    """Whether the batch that begins at the head of the queue is closed while it waits for an instance."""
    number = state.queue_number[state.position[HEAD] & (state.queue.shape[0] - 1)]
    share: float = (number * GOLDEN) % 1.0
    return share < batching.closing


@njit_flat
def size_when_closed(state: BatcherState, batching: Batching, size: int) -> int:
    """Return how many are in a closed batch that could hold ``size``."""
    when = oldest(state) + batching.delay
    for slot in range(state.started.size):
        when = max(when, state.started[slot])  # before, another batch was waiting
    count = 1
    while count < size:
        place = (state.position[HEAD] + count) & (state.queue.shape[0] - 1)
        if state.queue[place, ARRIVAL] > when:
            break
        count += 1
    waiting = state.position[TAIL] - state.position[HEAD]
    return size if waiting - count >= batching.max_batch else count


@njit_flat
def idle_slot(state: BatcherState, batching: Batching) -> int:
    """Return a free slot if an instance of the present generation is idle, else -1."""
    slots = state.position[SLOTS]
    free = slots if slots < state.size.size else -1
    taken = 0
    for slot in range(slots - 1, -1, -1):
        if state.size[slot] == 0:
            free = slot
        elif state.epoch[slot] == state.position[EPOCH]:
            taken += 1
    return free if taken < batching.instances else -1


@njit_flat
def delay_expiry(state: BatcherState, batching: Batching) -> float:
    """Return when the oldest request makes an idle instance start, s; infinite if nothing waits for that."""
    if state.position[HEAD] == state.position[TAIL] or idle_slot(state, batching) < 0:
        return np.inf
    return oldest(state) + batching.delay


@njit_flat
def executing(state: BatcherState) -> tuple[int, int]:
    """Return how many slots execute, old generations included, and the one with the least work left.

    The lowest slot wins a tie; -1 if none executes.
    """
    busy, first = 0, -1
    for slot in range(state.position[SLOTS]):
        if state.size[slot] > 0:
            busy += 1
            if first < 0 or state.remaining[slot] < state.remaining[first]:
                first = slot
    return busy, first


@njit_flat
def core_share(busy: int, machine: Machine) -> float:
    """Return the share of the cores it asks for that a thread gets, in (0, 1]."""
    demand = busy * machine.threads + machine.background
    return 1.0 if demand <= machine.cores else machine.cores / demand


@njit_flat
def slowdown(busy: int, machine: Machine) -> float:
    """Return the factor by which work takes longer beside the sharing of time.

    Other busy cores share memory and caches; threads that wait for a core cost switches between them, and
    make others wait that they work together with.
    """
    demand = busy * machine.threads + machine.background
    if demand <= machine.cores:
        return 1.0 + machine.contention * max(0.0, demand - machine.threads)
    disturbed = 1.0 + machine.contention * max(0.0, machine.cores - machine.threads)
    return disturbed + machine.switching * (demand / machine.cores - 1.0)


@njit_flat
def pass_time(state: BatcherState, until: float, pace: float) -> None:
    """Let running batches progress by ``pace`` seconds of work per second. ``state`` is modified in place."""
    done = (until - state.clock[0]) * pace
    for slot in range(state.position[SLOTS]):
        if state.size[slot] > 0:
            state.remaining[slot] = max(0.0, state.remaining[slot] - done)
    state.clock[0] = until


@njit_flat
def complete(state: BatcherState, totals: BatcherTotals, slot: int) -> None:
    """Answer the batch of a slot. ``state`` and ``totals`` are modified in place."""
    now, size = state.clock[0], state.size[slot]
    executed = (now - state.started[slot]) * (1.0 - state.gap_share[slot])
    for i in range(size):
        in_server = now - state.running[slot, i, ARRIVAL]
        number = state.running_number[slot, i]
        if totals.tally[ARRIVED] - number <= state.latency.size:  # else the log has moved on
            state.latency[number & (state.latency.size - 1)] = in_server + state.running[slot, i, OVERHEAD]
        totals.seconds[QUEUED] += in_server - executed
    totals.seconds[COMPUTED] += executed * size
    totals.tally[ANSWERED] += size
    totals.batch_counts[size] += 1
    totals.batch_seconds[size] += executed
    state.size[slot] = 0
    while state.position[SLOTS] > 0 and state.size[state.position[SLOTS] - 1] == 0:
        state.position[SLOTS] -= 1


@njit_flat
def admit(state: BatcherState, totals: BatcherTotals, arrivals: BatcherArrivals, index: int) -> None:
    """Queue a request, or drop it if the ring is full. ``state`` and ``totals`` are modified in place."""
    number = totals.tally[ARRIVED]
    totals.tally[ARRIVED] += 1
    log = number & (state.latency.size - 1)
    capacity = state.queue.shape[0]
    if state.position[TAIL] - state.position[HEAD] >= capacity:
        state.latency[log] = np.inf
        totals.tally[DROPPED] += 1
        return
    state.latency[log] = np.nan
    target = state.position[TAIL] & (capacity - 1)
    state.queue[target, ARRIVAL] = arrivals.time[index]
    state.queue[target, OVERHEAD] = arrivals.overhead[index]
    state.queue[target, NOISE] = arrivals.noise[index]
    state.queue[target, SIZE] = arrivals.size[index]
    state.queue_number[target] = number
    state.position[TAIL] += 1
