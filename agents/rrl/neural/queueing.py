"""What queueing theory says of a batching server, as the network's starting point.

A batch forms while requests wait for one another and for a free instance. The batch that the load itself
forms, b*, is a fixed point: while a batch of b executes, ``rate * l(b) / slots`` requests come for each slot.
From it follow the utilisation, the mean wait of an M/G/c queue (Sakasegawa's approximation), and the latency.
The formulas leave out much (contention, time slices, closing batches, tails); the network learns the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tuner.agents.rrl.neural.knowledge import SIZES, ServerKnowledge
from tuner.knobs import KnobSpace, Role

__all__ = ["Queue", "Settings", "queue_of", "settings_of", "split_time"]

THREADS = (Role.PARALLELISM, Role.INTER_OP, Role.INTRA_OP)
"""Roles in which 0 stands for one for each core."""
STEPS = 12
"""Of the search for the fixed point; where the server keeps up each halves the error at least."""
FULLEST = 0.97
"""Utilisation beyond which the formula of the wait has no meaning."""
GPU_SLOTS = 2.5
"""Batches that a GPU executes at once without hurting each other much."""
SERIAL, ALONE, BRANCHES = 0.2, 0.5, 3.0
"""A typical graph: the share of an operation that cannot be split, the share of operations that have none
beside them, and how many the others have."""
OVERLOAD, MOST_OVERLOAD = 3.0, 3.0
"""How steeply the logarithm of the latency grows with the utilisation beyond :data:`FULLEST`,
and by how much at most: how bad the bad ones are is no matter."""


class Settings(NamedTuple):
    """What configurations mean, column by column; ones where a server has no such knob. All (n,) floats."""

    batch: np.ndarray
    delay: np.ndarray  # s
    parallelism: np.ndarray
    inter_op: np.ndarray
    intra_op: np.ndarray
    places: np.ndarray  # GPUs of the server, as far as its knobs say
    automatic: np.ndarray  # (n, 3) bool, which of the last three are left to the server

    def row(self, numbers: np.ndarray) -> Settings:
        """Return some of the rows."""
        return Settings(*(column[numbers] for column in self))


class Queue(NamedTuple):
    """The server under a load as the formulas see it. All (n,)."""

    slots: np.ndarray  # executions at once
    formed: np.ndarray  # b*, the batch that the load forms
    execution: np.ndarray  # s, l(b*)
    full: np.ndarray  # utilisation with full batches: beyond 1 the server cannot keep up
    busy: np.ndarray  # utilisation with the batches that form
    forming: np.ndarray  # s, wait for the batch
    wait: np.ndarray  # s, wait for a slot
    latency: np.ndarray  # logarithm of the mean latency, s
    use: np.ndarray  # cores (of a GPU: its share) that executions keep busy


def settings_of(space: KnobSpace, cores: float) -> Settings:
    """Return what every configuration of a space means.

    0 threads or executions at once are left to the server. It is taken to have one for each core, but may
    count hardware threads. A batch limit of 0 is no limit. It counts as the largest of the grid, or of
    :data:`~tuner.agents.rrl.neural.knowledge.SIZES`.

    Args:
        space: The knobs.
        cores: Of the machine.
    """

    def column(role: Role, otherwise: float) -> np.ndarray:
        knob = space.with_role(role)
        if knob is None:
            values = np.full(space.size, space.fixed.get(role, otherwise))
        else:
            values = space.column(knob.name) * knob.places
        return values

    limit = column(Role.BATCH, 1.0)
    batch = np.where(limit == 0.0, max(float(limit.max()), float(SIZES[-1])), np.maximum(limit, 1.0))
    delay = np.where(batch == 1.0, 0.0, column(Role.DELAY, 0.0))
    threads = [column(role, 1.0) for role in THREADS]
    automatic = np.stack([values == 0.0 for values in threads], axis=1)
    parallel, inter_op, intra_op = (np.where(values == 0.0, max(cores, 1.0), values) for values in threads)
    knob = space.with_role(Role.PARALLELISM)
    places = np.full(space.size, 1.0 if knob is None else knob.places)
    return Settings(batch, delay, parallel, inter_op, intra_op, places, automatic)


def split_time(settings: Settings, cores: float) -> np.ndarray:
    """Return how long a run of a typical graph takes over one with a single thread (Amdahl).   # (n,)."""
    intra = SERIAL + (1.0 - SERIAL) / np.minimum(settings.intra_op, cores)
    inter = ALONE + (1.0 - ALONE) / np.minimum(settings.inter_op, BRANCHES)
    return np.asarray(intra * inter)


def queue_of(settings: Settings, knowledge: ServerKnowledge, rate: float) -> Queue:
    """Return what the formulas say of every configuration under a load.

    Args:
        settings: The configurations.   # (n,) each
        knowledge: Of the server.
        rate: Rows/s.
    """
    batch, delay = settings.batch, settings.delay
    split = split_time(settings, knowledge.cores)
    # A run that takes half the time keeps about two cores busy.
    room = GPU_SLOTS * settings.places if knowledge.gpu else knowledge.cores * split
    slots = np.minimum(settings.parallelism, np.maximum(room, 1.0))
    formed = np.ones_like(batch)
    for _ in range(STEPS):
        arriving = rate * split * knowledge.execution(formed) / slots
        formed = 0.5 * formed + 0.5 * np.clip(np.maximum(arriving, 1.0 + rate * delay * 0.5), 1.0, batch)
    execution = split * knowledge.execution(formed)
    full = rate * split * knowledge.execution(batch) / (batch * slots)
    busy = rate * execution / (formed * slots)
    power = np.sqrt(2.0 * (slots + 1.0)) - 1.0
    crowd = np.minimum(busy, 1.0) ** power * execution / (slots + 1.0)  # the rest of a batch that executes
    rho = np.minimum(full, FULLEST)
    variability = 0.5 * (knowledge.burstiness + 1.0)
    queue = variability * split * knowledge.execution(batch) * rho**power / (slots * (1.0 - rho))
    wait = np.where(batch > 1.0, crowd, 0.0) + queue
    forming = np.where(batch > 1.0, np.minimum(delay, (batch - 1.0) / rate), 0.0)
    overload = np.minimum(OVERLOAD * np.maximum(full - FULLEST, 0.0), MOST_OVERLOAD)
    latency = np.log(execution + wait + forming) + overload
    use = rate * execution / formed / split
    return Queue(slots, formed, execution, full, busy, forming, wait, latency, use)
