"""The virtual-time engine: calls a policy with each event in order of time, and executes its commands.

Rules
-----
* The next event is the earliest of: the end of the oldest batch outstanding on some accelerator, the next
  arrival, the policy's own timer. At one instant they come in that order; of two accelerators the lower
  number comes first. No event at or after ``until`` happens, for an arrival not yet known may precede it.
* A batch starts at the latest of: the start it was commanded for; its command plus the network's delay, as
  drawn (from a queue that is an accelerator's own: the arrival of the newest request plus that delay, for the
  requests are there already); the end of what its accelerator does before. It takes the time of the profile
  times a factor, as drawn. The clients have their answers a response delay after its end. All that is known
  when the batch is sent, and is counted then.
* :func:`advance` can stop between any two commands, for the caller to make room, and goes on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tuner._jit import njit_flat, njit_inline
from tuner.cluster.execution import Execution, note_command, note_event
from tuner.cluster.statistics import Totals, count_batch, count_drop
from tuner.scheduling.log import ARRIVE, FINISH, WAKE
from tuner.scheduling.policy import arrive, finish, wake
from tuner.scheduling.tournament import key_of, least_index, least_key, set_key
from tuner.scheduling.vocabulary import DISPATCH, OK, Cluster

if TYPE_CHECKING:
    from tuner.cluster.requests import Chunk

__all__ = ["CROWDED", "DRAWS", "LOGGED", "MORE", "STUCK", "advance"]

# Statuses of `advance` besides OK and FULL: do what they say, then call again.
CROWDED = 2  # an accelerator has more batches outstanding than there is room for: `lengthen`
DRAWS = 3  # the drawn numbers are used up: draw more
LOGGED = 4  # the buffer of the log is full: empty it
MORE = 5  # EVENTS events have passed: nothing to do, but a chance to stop
STUCK = 6  # the policy asks for `wake` at one instant for ever: a mistake of the policy, do not go on

EVENTS = 1 << 19
STALLS = 10_000


@njit_flat
def advance(policy: Any, execution: Execution, chunk: Chunk, totals: Totals, until: float) -> int:
    """Let time pass up to, not including, a time.

    Args:
        policy: The policy's state; modified in place.
        execution: Where the accelerators stand; modified in place.
        chunk: All arrivals from the clock to ``until`` that have not happened yet, from ``taken`` on.
        totals: The counts; modified in place.
        until: s; the clock stands there afterwards. Infinite: until everything is answered.

    Returns:
        OK; FULL if the policy's rings are (see :func:`tuner.scheduling.cluster.grow`); or one of those above.
    """
    clock, board = execution.clock, policy[0].board
    for _ in range(EVENTS):
        status = settle(policy[0], execution, totals)
        if status != OK:
            return status
        if execution.log.size and execution.log.size - clock[0].logged <= policy[0].commands.size:
            return LOGGED
        end = least_key(execution.ends)
        arrival = chunk.time[clock[0].taken] if clock[0].taken < chunk.time.size else np.inf
        timer = max(board[0].wake_at, clock[0].now)
        if not min(end, arrival, timer) < until:
            clock[0].now = until if until < np.inf else clock[0].now
            return OK
        if end <= arrival and end <= timer:
            status = call_finish(policy, execution, end)
        elif arrival <= timer:
            status = call_arrive(policy, execution, chunk)
        elif min(end, arrival, until) == np.inf and clock[0].answered == clock[0].arrived:
            return OK  # nothing left; a policy with a periodic timer would go on for ever
        else:
            status = call_wake(policy, execution, timer)
        if status != OK:
            return status
    return MORE


@njit_inline
def call_finish(policy: Any, execution: Execution, now: float) -> int:
    """Call the policy with the end of the batch that ends first. Modifies ``policy`` and ``execution``."""
    accelerator = least_index(execution.ends)
    status = finish(policy, accelerator, now)
    if status != OK:
        return status
    execution.lines[accelerator].head += 1
    execution.clock[0].ended = accelerator
    execution.clock[0].now = now
    execution.clock[0].carried = 0
    execution.clock[0].stalls = 0
    if execution.log.size:
        note_event(execution, FINISH, accelerator, 0, 0)
    return OK


@njit_inline
def call_arrive(policy: Any, execution: Execution, chunk: Chunk) -> int:
    """Call the policy with the next request of the chunk. Modifies ``policy`` and ``execution``."""
    clock = execution.clock
    taken, number = clock[0].taken, clock[0].arrived
    now, session, source = chunk.time[taken], chunk.session[taken], chunk.source[taken]
    if chunk.items.size:
        policy[0].board[0].items = chunk.items[taken]
    status = arrive(policy, session, source, number, now)
    if status != OK:
        return status
    clock[0].now = now
    clock[0].carried = 0
    clock[0].stalls = 0
    if execution.log.size:
        note_event(execution, ARRIVE, session, source, policy[0].board[0].items)
    clock[0].taken = taken + 1
    clock[0].arrived = number + 1
    return OK


@njit_inline
def call_wake(policy: Any, execution: Execution, now: float) -> int:
    """Call the policy at the time that its timer is set to. Modifies ``policy`` and ``execution``."""
    clock = execution.clock
    status = wake(policy, now)
    if status != OK:
        return status
    idle = policy[0].board[0].commands == 0 and clock[0].now == now
    clock[0].stalls = clock[0].stalls + 1 if idle else 0
    clock[0].now = now
    clock[0].carried = 0
    if execution.log.size:
        note_event(execution, WAKE, 0, 0, 0)
    return STUCK if clock[0].stalls > STALLS else OK


@njit_inline
def settle(cluster: Cluster, execution: Execution, totals: Totals) -> int:
    """Carry out the remaining commands of the last event. Modifies ``execution`` and ``totals``."""
    clock = execution.clock
    while clock[0].carried < cluster.board[0].commands:
        command = clock[0].carried
        if cluster.commands[command].kind == DISPATCH:
            status = send(cluster, execution, totals, command)
            if status != OK:
                return status
        else:
            count_drop(cluster, totals, command)
            if execution.log.size:
                note_command(cluster, execution, command, np.nan, np.nan)
        clock[0].answered += cluster.commands[command].count
        clock[0].carried = command + 1
    if clock[0].ended >= 0:
        update_end(execution, clock[0].ended)
        clock[0].ended = -1
    return OK


@njit_inline
def send(cluster: Cluster, execution: Execution, totals: Totals, command: int) -> int:
    """Let an accelerator execute a batch. ``execution`` and ``totals`` are modified in place."""
    clock = execution.clock
    accelerator, size = cluster.commands[command].accelerator, cluster.commands[command].items
    head, tail = execution.lines[accelerator].head, execution.lines[accelerator].tail
    depth = execution.sent.shape[1]
    if tail - head == depth:
        return CROWDED
    drawn = clock[0].drawn
    if drawn == clock[0].filled:
        return DRAWS
    control, data = pick(execution.control, drawn), pick(execution.data, drawn)
    start = max(
        cluster.commands[command].start,
        arrival_at(cluster, command, clock[0].now, control, data),
        execution.lines[accelerator].busy_until,
    )
    kind, session = cluster.accelerators[accelerator].kind, cluster.commands[command].session
    end = start + cluster.latency[kind, session, size] * pick(execution.factor, drawn)
    execution.sent[accelerator, tail & (depth - 1)].start = start
    execution.sent[accelerator, tail & (depth - 1)].end = end
    execution.lines[accelerator].tail = tail + 1
    execution.lines[accelerator].busy_until = end
    clock[0].drawn = drawn + 1
    if tail == head:
        set_key(execution.ends, accelerator, end)
    count_batch(cluster, totals, command, start, end, end + pick(execution.response, drawn))
    if execution.log.size:
        note_command(cluster, execution, command, start, end)
    return OK


@njit_inline
def arrival_at(cluster: Cluster, command: int, now: float, control: float, data: float) -> float:
    """Return when a batch has reached its accelerator, s.

    Args:
        cluster: The policy's view of the cluster, with the command.
        command: The number of its DISPATCH.
        now: s, when it was commanded.
        control: s from the command to the accelerator.
        data: s per request that is sent there.
    """
    queue = cluster.commands[command].queue
    count = cluster.commands[command].count
    there: float = now + control + data * count
    if cluster.queues[queue].accelerator < 0:
        return there
    # The queue is the accelerator's own: every request was sent there when it came, one by one.
    newest = (cluster.commands[command].first + count - 1) & (cluster.waiting.shape[1] - 1)
    there = cluster.waiting[queue, newest].arrival + control + data
    return there


@njit_inline
def update_end(execution: Execution, accelerator: int) -> None:
    """Set the key of an accelerator in ``ends`` to the end of its oldest batch. Modifies ``execution``."""
    head, end = execution.lines[accelerator].head, np.inf
    if head < execution.lines[accelerator].tail:
        end = execution.sent[accelerator, head & (execution.sent.shape[1] - 1)].end
    if key_of(execution.ends, accelerator) != end:
        set_key(execution.ends, accelerator, end)


@njit_inline
def pick(ring: np.ndarray, drawn: int) -> float:
    """Return the ring's number for the draw of this index; the ring is used again and again."""
    return float(ring[drawn & (ring.size - 1)])
