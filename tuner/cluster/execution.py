"""The state of a simulated cluster outside the policy: clock, accelerators, drawn numbers, log buffer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat
from tuner.scheduling.log import ARRIVE, ENTRY, FINISH, REFUSE, SEND
from tuner.scheduling.tournament import make_tree
from tuner.scheduling.vocabulary import DISPATCH, Cluster, records

__all__ = ["Execution", "lengthen", "make_execution", "note_command", "note_event"]

DEPTH = 4
"""Outstanding batches per accelerator that there is room for at first."""

CLOCK = np.dtype(
    [
        ("now", "f8"),  # s
        ("arrived", "i8"),  # requests that have arrived so far; also the number of the next
        ("answered", "i8"),  # requests sent or dropped so far
        ("taken", "i8"),  # requests of the chunk that have arrived so far
        ("carried", "i8"),  # commands of the last event carried out so far
        ("ended", "i8"),  # accelerator of the last event if its key in `ends` is not up to date, else -1
        ("stalls", "i8"),  # wakes in a row that gave no command and let no time pass
        ("drawn", "i8"),  # numbers used so far
        ("filled", "i8"),  # numbers drawn so far
        ("logged", "i8"),  # entries in the buffer of the log
    ],
    align=True,
)
LINE = np.dtype(
    [
        ("head", "i8"),  # position of the oldest outstanding batch, counted without wrapping
        ("tail", "i8"),  # position of the next to be sent
        ("busy_until", "f8"),  # s, when everything sent so far will have ended, in truth
    ],
    align=True,
)
SENT = np.dtype([("start", "f8"), ("end", "f8")], align=True)  # s, of an outstanding batch, in truth


class Execution(NamedTuple):
    """What really happens; the policy learns of it from events only. All arrays are modified in place.

    The last four are rings of drawn numbers, used one per batch; their lengths are powers of 2, and 1 if the
    number is always the same.
    """

    clock: np.ndarray  # (1,) CLOCK
    lines: np.ndarray  # (N,) LINE
    sent: np.ndarray  # (N, D) SENT, rings; D is a power of 2
    ends: np.ndarray  # tree over accelerators: when the oldest outstanding batch ends, s
    log: np.ndarray  # (n,) ENTRY buffer; n = 0: nothing is noted
    factor: np.ndarray  # on the execution time
    control: np.ndarray  # s from the command to the accelerator
    data: np.ndarray  # s per request of the batch, on top
    response: np.ndarray  # s from the end of the execution to the client


def make_execution(accelerators: int, log: int = 0) -> Execution:
    """Return everything idle at time 0, executing as long as the profile says, with no delays.

    Args:
        accelerators: How many.
        log: Length of the log's buffer; 0 for none, else more than one event can fill.
    """
    clock = records(1, CLOCK)
    clock[0].ended = -1
    clock[0].filled = np.iinfo(np.int64).max
    return Execution(
        clock=clock,
        lines=records(accelerators, LINE),
        sent=records((accelerators, DEPTH), SENT),
        ends=make_tree(accelerators),
        log=records(log, ENTRY),
        factor=np.ones(1),
        control=np.zeros(1),
        data=np.zeros(1),
        response=np.zeros(1),
    )


def lengthen(execution: Execution) -> Execution:
    """Return the execution with room for twice as many outstanding batches; shares the other arrays."""
    count, depth = execution.sent.shape
    larger = records((count, 2 * depth), SENT)
    for accelerator in range(count):
        line = execution.lines[accelerator]
        positions = np.arange(line.head, line.tail)
        larger[accelerator, positions & (2 * depth - 1)] = execution.sent[
            accelerator, positions & (depth - 1)
        ]
    return execution._replace(sent=larger)


@njit_flat
def note_event(execution: Execution, kind: int, which: int, source: int, items: int) -> None:
    """Log the event that the policy has just handled. Modifies ``execution``.

    Args:
        execution: Its log gets the entry.
        kind: ARRIVE, FINISH or WAKE.
        which: The session of ARRIVE, the accelerator of FINISH.
        source: Of ARRIVE, the frontend.
        items: Of ARRIVE, the size of the request.
    """
    index = execution.clock[0].logged
    execution.log[index].kind = kind
    execution.log[index].time = execution.clock[0].now
    execution.log[index].session = which if kind == ARRIVE else -1
    execution.log[index].accelerator = which if kind == FINISH else -1
    execution.log[index].source = source
    execution.log[index].number = execution.clock[0].arrived if kind == ARRIVE else -1
    execution.log[index].queue = -1
    execution.log[index].first = -1
    execution.log[index].count = 0
    execution.log[index].items = items
    execution.log[index].start = np.nan
    execution.log[index].finish = np.nan
    execution.log[index].started = np.nan
    execution.log[index].ended = np.nan
    execution.clock[0].logged = index + 1


@njit_flat
def note_command(cluster: Cluster, execution: Execution, command: int, started: float, ended: float) -> None:
    """Log a command when it is carried out, with its true start and end, s. Modifies ``execution``."""
    index = execution.clock[0].logged
    queue, first = cluster.commands[command].queue, cluster.commands[command].first
    sent = cluster.commands[command].kind == DISPATCH
    execution.log[index].kind = SEND if sent else REFUSE
    execution.log[index].time = execution.clock[0].now
    execution.log[index].session = cluster.commands[command].session
    execution.log[index].source = 0
    execution.log[index].number = cluster.waiting[queue, first & (cluster.waiting.shape[1] - 1)].number
    execution.log[index].accelerator = cluster.commands[command].accelerator
    execution.log[index].queue = queue
    execution.log[index].first = first
    execution.log[index].count = cluster.commands[command].count
    execution.log[index].items = cluster.commands[command].items
    execution.log[index].start = cluster.commands[command].start
    execution.log[index].finish = cluster.commands[command].finish
    execution.log[index].started = started
    execution.log[index].ended = ended
    execution.clock[0].logged = index + 1
