"""What every policy does with its cluster: take in requests, send batches, drop, and note the commands."""

from __future__ import annotations

import numpy as np

from tuner._jit import njit_flat
from tuner.scheduling.vocabulary import DISPATCH, DROP, FULL, OK, Cluster

__all__ = [
    "arrival_of",
    "begin",
    "deadline",
    "dispatch",
    "dispatch_alone",
    "dispatch_newest",
    "drop",
    "has_room",
    "items_of",
    "move_forward",
    "overdue",
    "push",
    "waiting",
]


@njit_flat
def begin(cluster: Cluster, now: float) -> None:
    """Start an event: the commands of the one before are forgotten. ``cluster`` is modified in place."""
    cluster.board[0].now = now
    cluster.board[0].commands = 0


@njit_flat
def push(cluster: Cluster, queue: int, number: int, arrival: float) -> int:
    """Put a request into a queue; return OK, or FULL if the ring is. ``cluster`` is modified in place.

    A queue is in the order of deadlines, so a request whose deadline is nearer than its session's SLO counts
    as one that came earlier, and overtakes those with later deadlines.
    """
    length = cluster.waiting.shape[1]
    tail = cluster.queues[queue].tail
    arrival -= cluster.board[0].early
    if tail - cluster.queues[queue].head == length:
        return FULL
    cluster.waiting[queue, tail & (length - 1)].arrival = arrival
    cluster.waiting[queue, tail & (length - 1)].number = number
    cluster.waiting[queue, tail & (length - 1)].items = cluster.board[0].items
    cluster.queues[queue].tail = tail + 1
    if cluster.board[0].early > 0:
        place = tail
        while place > cluster.queues[queue].head and arrival_of(cluster, queue, place - 1) > arrival:
            place -= 1
        move_forward(cluster, queue, tail, place)
    return OK


@njit_flat
def waiting(cluster: Cluster, queue: int) -> int:
    """Return how many requests wait in a queue."""
    return int(cluster.queues[queue].tail - cluster.queues[queue].head)


@njit_flat
def deadline(cluster: Cluster, queue: int, position: int) -> float:
    """Return when the execution of a waiting request must have ended, s."""
    session = cluster.queues[queue].session
    return float(arrival_of(cluster, queue, position) + cluster.sessions[session].budget)


@njit_flat
def arrival_of(cluster: Cluster, queue: int, position: int) -> float:
    """Return when a waiting request arrived, as far as its deadline counts, s."""
    return float(cluster.waiting[queue, position & (cluster.waiting.shape[1] - 1)].arrival)


@njit_flat
def items_of(cluster: Cluster, queue: int, position: int) -> int:
    """Return the size of a waiting request."""
    return int(cluster.waiting[queue, position & (cluster.waiting.shape[1] - 1)].items)


@njit_flat
def overdue(cluster: Cluster, queue: int, now: float) -> int:
    """Return how many requests at the head of a queue have reached their deadline."""
    count, head = 0, cluster.queues[queue].head
    while count < waiting(cluster, queue) and deadline(cluster, queue, head + count) <= now:
        count += 1
    return count


@njit_flat
def move_forward(cluster: Cluster, queue: int, position: int, place: int) -> None:
    """Move a request to an earlier place; those that it overtakes move back by one. Modifies ``cluster``."""
    mask = cluster.waiting.shape[1] - 1
    arrival = cluster.waiting[queue, position & mask].arrival
    number = cluster.waiting[queue, position & mask].number
    items = cluster.waiting[queue, position & mask].items
    for each in range(position, place, -1):
        cluster.waiting[queue, each & mask] = cluster.waiting[queue, (each - 1) & mask]
    cluster.waiting[queue, place & mask].arrival = arrival
    cluster.waiting[queue, place & mask].number = number
    cluster.waiting[queue, place & mask].items = items


@njit_flat
def has_room(cluster: Cluster) -> bool:
    """Whether one more command can be noted in this event."""
    return bool(cluster.board[0].commands < cluster.commands.size)


@njit_flat
def dispatch(cluster: Cluster, queue: int, count: int, accelerator: int, start: float) -> float:
    """Send the ``count`` oldest requests of a queue to an accelerator; return when they will have ended, s.

    Args:
        cluster: Modified in place.
        queue: The queue; loses the requests.
        count: How many, at least 1.
        accelerator: Where they execute; its ``free_at`` and ``outstanding`` are kept here.
        start: s, not before the accelerator is free and the data is there.
    """
    session = cluster.queues[queue].session
    kind = cluster.accelerators[accelerator].kind
    return _dispatch(cluster, queue, count, accelerator, (start, cluster.latency[kind, session, count]))


@njit_flat
def dispatch_alone(cluster: Cluster, queue: int, accelerator: int, start: float, length: float) -> float:
    """Send the oldest request of a queue as a batch of its own size; return when it will have ended, s.

    Args:
        cluster: Modified in place.
        queue: The queue; loses the request.
        accelerator: Where it executes; its ``free_at`` and ``outstanding`` are kept here.
        start: s, not before the accelerator is free and the data is there.
        length: How long it takes, as believed, s.
    """
    slot = cluster.queues[queue].head & (cluster.waiting.shape[1] - 1)
    end = _dispatch(cluster, queue, 1, accelerator, (start, length))
    cluster.commands[cluster.board[0].commands - 1].items = cluster.waiting[queue, slot].items
    return end


@njit_flat
def _dispatch(cluster: Cluster, queue: int, count: int, accelerator: int, span: tuple[float, float]) -> float:
    """Send the oldest requests of a queue; ``span`` is when it starts, and how long it takes, s."""
    start, length = span
    end: float = start + length
    _note(cluster, DISPATCH, queue, count)
    command = cluster.board[0].commands - 1
    cluster.commands[command].accelerator = accelerator
    cluster.commands[command].start = start
    cluster.commands[command].finish = end
    cluster.accelerators[accelerator].free_at = end
    cluster.accelerators[accelerator].outstanding += 1
    return end


@njit_flat
def dispatch_newest(cluster: Cluster, queue: int, count: int, accelerator: int, start: float) -> float:
    """Send the ``count`` newest requests of a queue, as :func:`dispatch` sends the oldest."""
    end = dispatch(cluster, queue, count, accelerator, start)
    first = cluster.queues[queue].tail - count
    cluster.commands[cluster.board[0].commands - 1].first = first
    cluster.queues[queue].head -= count
    cluster.queues[queue].tail = first
    return float(end)


@njit_flat
def drop(cluster: Cluster, queue: int, count: int) -> None:
    """Refuse the ``count`` oldest requests of a queue, at least 1. ``cluster`` is modified in place."""
    _note(cluster, DROP, queue, count)


@njit_flat
def _note(cluster: Cluster, kind: int, queue: int, count: int) -> None:
    index = cluster.board[0].commands
    first = cluster.queues[queue].head
    cluster.commands[index].kind = kind
    cluster.commands[index].session = cluster.queues[queue].session
    cluster.commands[index].queue = queue
    cluster.commands[index].first = first
    cluster.commands[index].count = count
    cluster.commands[index].items = count  # requests without a size of their own
    cluster.commands[index].accelerator = -1
    cluster.commands[index].start = np.nan
    cluster.commands[index].finish = np.nan
    cluster.queues[queue].head = first + count
    cluster.board[0].commands = index + 1
