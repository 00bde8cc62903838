"""The least that can drive a policy: arrivals from an array, batches that end as promised, no counting."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tuner._jit import njit_flat
from tuner.scheduling.policy import arrive, finish, wake
from tuner.scheduling.tournament import least_index, least_key, make_tree, set_key
from tuner.scheduling.vocabulary import DISPATCH, OK

__all__ = ["CROWDED", "Belt", "drive", "make_belt"]

CROWDED = 2  # more batches were sent to an accelerator in advance than there is room for
DEPTH = 8
"""Batches sent to an accelerator that have not ended, at most."""


class Belt(NamedTuple):
    """Where the accelerators and the arrivals stand; all arrays are modified in place."""

    ends: np.ndarray  # tree over accelerators: when the oldest batch sent to it ends, s
    finish: np.ndarray  # (N, DEPTH) s, when each batch sent ends: rings
    head: np.ndarray  # (N,) int64, position of the oldest, without wrapping
    tail: np.ndarray  # (N,) int64, position of the next
    taken: np.ndarray  # (1,) int64, arrivals that the policy has had so far
    answered: np.ndarray  # (2,) int64, requests sent and requests dropped so far


def make_belt(accelerators: int) -> Belt:
    """Return idle accelerators and no arrivals yet."""
    return Belt(
        ends=make_tree(accelerators),
        finish=np.zeros((accelerators, DEPTH)),
        head=np.zeros(accelerators, np.int64),
        tail=np.zeros(accelerators, np.int64),
        taken=np.zeros(1, np.int64),
        answered=np.zeros(2, np.int64),
    )


@njit_flat
def drive(policy: Any, belt: Belt, time: np.ndarray, session: np.ndarray) -> int:
    """Drive a policy with all arrivals, and with the ends and timers up to the last of them.

    Args:
        policy: The state; modified in place.
        belt: Modified in place; ``taken`` says where to go on after a status that is not OK.
        time: Arrivals in order.   # (n,) s
        session: Their sessions.   # (n,)

    Returns:
        OK; FULL if the policy's rings are: grow it, then call again; CROWDED.
    """
    board = policy.cluster.board
    while belt.taken[0] < time.size:
        arrival = time[belt.taken[0]]
        end = least_key(belt.ends)
        timer = max(board[0].wake_at, board[0].now)
        if end <= arrival and end <= timer:
            accelerator = least_index(belt.ends)
            belt.head[accelerator] += 1
            _note_end(belt, accelerator)
            status = finish(policy, accelerator, end)
        elif arrival <= timer:
            status = arrive(policy, session[belt.taken[0]], 0, belt.taken[0], arrival)
            belt.taken[0] += status == OK
        else:
            status = wake(policy, timer)
        if status == OK:
            status = _execute(policy, belt)
        if status != OK:
            return int(status)
    return OK


@njit_flat
def _execute(policy: Any, belt: Belt) -> int:
    """Do what the last event commanded. ``belt`` is modified in place."""
    commands = policy.cluster.commands
    for index in range(policy.cluster.board[0].commands):
        if commands[index].kind != DISPATCH:
            belt.answered[1] += commands[index].count
            continue
        accelerator = commands[index].accelerator
        if belt.tail[accelerator] - belt.head[accelerator] == DEPTH:
            return CROWDED
        belt.finish[accelerator, belt.tail[accelerator] & (DEPTH - 1)] = commands[index].finish
        belt.tail[accelerator] += 1
        belt.answered[0] += commands[index].count
        if belt.tail[accelerator] - belt.head[accelerator] == 1:
            _note_end(belt, accelerator)
    return OK


@njit_flat
def _note_end(belt: Belt, accelerator: int) -> None:
    """Note when the oldest batch of an accelerator ends. ``belt`` is modified in place."""
    end = np.inf
    if belt.tail[accelerator] > belt.head[accelerator]:
        end = belt.finish[accelerator, belt.head[accelerator] & (DEPTH - 1)]
    set_key(belt.ends, accelerator, end)
