"""The words of scheduling as numbers and records: commands, statuses, and what the state is made of.

Times are seconds on the driver's clock. A record array is made with :func:`records`, so that fields have
names in compiled code and without compilation alike: ``sessions[s].slo``. A field must not be called like
an attribute of numpy's records (``data``, ``size``, ``item``): without compilation that would win.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = [
    "ACCELERATOR",
    "BOARD",
    "COMMAND",
    "DISPATCH",
    "DROP",
    "FULL",
    "NEVER",
    "OK",
    "QUEUE",
    "REQUEST",
    "SESSION",
    "TOLERANCE",
    "Cluster",
    "records",
]

NEVER = np.inf
"""The time of a timer that is not set."""
TOLERANCE = 5e-10
"""s by which rounding may let a batch end after a deadline; half of what drivers forgive."""

# Kinds of command.
DISPATCH = 0  # send `count` requests of a queue, from `first` on, to an accelerator
DROP = 1  # answer them with a refusal: they cannot be served in time

# Statuses returned by `arrive`, `finish` and `wake`.
OK = 0
FULL = 1  # the ring of the queue is full and nothing was changed: `grow` the state, then call again

BOARD = np.dtype(
    [
        ("now", "f8"),  # s, time of the last event
        ("wake_at", "f8"),  # s, when the policy wants `wake`; NEVER if not
        ("commands", "i8"),  # how many commands the last event gave
        ("items", "i8"),  # how large the next request to arrive is; 1 unless the driver says otherwise
        (
            "early",
            "f8",
        ),  # s by which the deadline of the next to arrive is before its session's SLO; 0 at first
        ("void", "i8"),  # 1: the batch that ends now was not executed; 0 unless the driver says otherwise
        ("d_control", "f8"),  # s from the scheduler's decision to the accelerator, allowed for
        ("d_data", "f8"),  # s per request of a batch to send it there, allowed for
        ("d_response", "f8"),  # s from the end of the execution to the client, allowed for
    ],
    align=True,
)
SESSION = np.dtype(
    [
        ("slo", "f8"),  # s from arrival to the client's answer
        ("budget", "f8"),  # s from arrival to the end of the execution: slo - response
        ("largest", "i8"),  # largest batch that may be formed
    ],
    align=True,
)
ACCELERATOR = np.dtype(
    [
        ("kind", "i8"),  # which profile it has: first index of Cluster.latency
        ("free_at", "f8"),  # s, when everything sent to it so far will have ended, as the policy expects
        ("outstanding", "i8"),  # batches sent to it that have not ended
    ],
    align=True,
)
QUEUE = np.dtype(
    [
        ("session", "i8"),
        ("accelerator", "i8"),  # the one it belongs to, -1 if it belongs to none
        ("head", "i8"),  # position of the oldest waiting request, counted without wrapping
        ("tail", "i8"),  # position of the next to arrive
    ],
    align=True,
)
REQUEST = np.dtype(
    [
        ("arrival", "f8"),  # s; of one with a nearer deadline, that much before it came
        ("number", "i8"),  # the driver's name for it
        ("items", "i8"),  # how large it is: what it adds to the size of a batch
    ],
    align=True,
)
COMMAND = np.dtype(
    [
        ("kind", "i8"),  # DISPATCH or DROP
        ("session", "i8"),
        ("queue", "i8"),
        ("first", "i8"),  # position in the queue's ring, without wrapping
        ("count", "i8"),  # requests
        ("items", "i8"),  # the size of the batch: the sum over its requests, last index of Cluster.latency
        ("accelerator", "i8"),  # -1 for DROP
        ("start", "f8"),  # s, the execution starts then, or later if the accelerator or the data is late
        ("finish", "f8"),  # s, when the policy expects it to end
    ],
    align=True,
)


class Cluster(NamedTuple):
    """What every policy knows. All arrays are modified in place; every policy's state holds one.

    ``waiting`` holds the requests of a queue at ``position & (L - 1)``. The slots of a batch stay
    readable after its DISPATCH until the next event.
    """

    board: np.ndarray  # (1,) BOARD
    sessions: np.ndarray  # (M,) SESSION
    accelerators: np.ndarray  # (N,) ACCELERATOR
    queues: np.ndarray  # (Q,) QUEUE; queue q < M belongs to session q unless the policy says otherwise
    waiting: np.ndarray  # (Q, L) REQUEST, rings; L is a power of 2
    latency: np.ndarray  # (K, M, B+1) s per kind, session and batch size; [.., 0] is 0, not decreasing
    commands: np.ndarray  # (C,) COMMAND


def records(shape: int | tuple[int, ...], kind: np.dtype) -> np.ndarray:
    """Return zeroed records whose fields can be read as attributes, compiled or not."""
    return np.zeros(shape, kind).view(np.recarray)
