"""The cluster as policies know it: its description in plain Python, and the state that is built from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from tuner.scheduling.vocabulary import (
    ACCELERATOR,
    BOARD,
    COMMAND,
    NEVER,
    QUEUE,
    REQUEST,
    SESSION,
    Cluster,
    records,
)

__all__ = [
    "QUANTILE",
    "ClusterSpec",
    "Delays",
    "NoOptions",
    "SessionSpec",
    "believe",
    "build_cluster",
    "grow",
    "linear_latency",
]

LARGEST = 1024
"""Batches larger than this are never formed from a linear profile."""
FIRST_RING = 64
"""Requests per queue that the rings hold at first."""
QUANTILE = 0.99
"""Share of a session's requests that must be answered within its SLO, unless it says otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoOptions:
    """The options of policies in which nothing can be chosen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Delays:
    """The delays of the network that a policy assumes, s."""

    control: float = 0.0
    """From its decision to the accelerator."""
    data: float = 0.0
    """To send the input of one request of a batch there."""
    response: float = 0.0
    """From the end of the execution to the client."""

    def __post_init__(self) -> None:
        if not (0 <= self.control < NEVER and 0 <= self.data < NEVER and 0 <= self.response < NEVER):
            raise ValueError(f"network delays must be finite and at least 0, but got {self}")


@dataclass(frozen=True, kw_only=True)
class SessionSpec:
    """A model with its SLO."""

    name: str
    slo: float
    """s from arrival to the client's answer."""
    latency: np.ndarray
    """Execution latency per kind of accelerator and batch size.   # (K, B+1) s; [:, 0] is 0."""
    quantile: float = QUANTILE
    """Share of the requests that must be answered within the SLO; policies need not know it."""

    def __post_init__(self) -> None:
        table = self.latency
        if not (table.ndim == 2 and table.shape[1] >= 2 and np.isfinite(table).all()):
            raise ValueError(f"session {self.name}: a profile needs finite latencies for batches from 1 on")
        if not ((table[:, 0] == 0).all() and (table[:, 1] > 0).all() and (np.diff(table) >= 0).all()):
            raise ValueError(
                f"session {self.name}: latencies must be positive and must not fall with the batch"
            )
        if not 0 < self.slo < NEVER:
            raise ValueError(f"session {self.name}: `slo > 0` must hold, but got {self.slo=}")


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """Sessions on accelerators."""

    sessions: Sequence[SessionSpec]
    kinds: Sequence[int]
    """Per accelerator its kind: the row of every session's latency table that it executes at."""
    delays: Delays = field(default_factory=Delays)
    busy: Mapping[int, float] = field(default_factory=dict)
    """Accelerators that execute a batch at time 0, and when it should have ended, s: the past if overdue.
    The driver reports its end with `finish`, like that of any other."""

    def __post_init__(self) -> None:
        rows = min((session.latency.shape[0] for session in self.sessions), default=0)
        if not (self.sessions and self.kinds):
            raise ValueError("a cluster needs at least one session and one accelerator")
        if not (min(self.kinds) >= 0 and max(self.kinds) < rows):
            raise ValueError(f"kinds of accelerators must lie in 0..{rows - 1}, but got {list(self.kinds)}")
        if not all(place in range(len(self.kinds)) and np.isfinite(end) for place, end in self.busy.items()):
            raise ValueError(f"busy accelerators must exist, and their batches end, but got {self.busy}")


def linear_latency(alpha: float, beta: float, slo: float) -> np.ndarray:
    """Return ``l(b) = alpha b + beta`` for every batch that can end within the SLO.   # (B+1,) s, B >= 1.

    Args:
        alpha: s per request.
        beta: s per batch.
        slo: s; larger batches are of no use.
    """
    useful = LARGEST if alpha == 0 else (slo - beta) / alpha + 1e-9
    latency = alpha * np.arange(int(max(min(useful, LARGEST), 1)) + 1) + beta
    latency[0] = 0.0
    return np.asarray(latency)


def build_cluster(
    spec: ClusterSpec, *, queues: Sequence[tuple[int, int]] | None = None, commands: int | None = None
) -> Cluster:
    """Return the state at time 0: nothing waits; accelerators are idle unless the spec says otherwise.

    Args:
        spec: The description of the cluster.
        queues: The session and the accelerator (-1: none) of each queue; one queue per session if None.
        commands: Most commands of one event; if None, one for each queue and accelerator fits.
    """
    kinds = max(spec.kinds) + 1
    sizes = [session.latency.shape[1] for session in spec.sessions]
    latency = np.full((kinds, len(sizes), max(sizes)), np.inf)
    sessions = records(len(sizes), SESSION)
    for index, session in enumerate(spec.sessions):
        latency[:, index, : sizes[index]] = session.latency[:kinds]
        sessions[index] = (session.slo, session.slo - spec.delays.response, sizes[index] - 1)
    pairs = list(queues) if queues is not None else [(index, -1) for index in range(len(sizes))]
    accelerators = records(len(spec.kinds), ACCELERATOR)
    accelerators["kind"] = spec.kinds
    for place, ends in spec.busy.items():
        accelerators[place].free_at, accelerators[place].outstanding = ends, 1
    board = records(1, BOARD)
    delays = spec.delays
    board[0] = (0.0, NEVER, 0, 1, 0.0, 0, delays.control, delays.data, delays.response)
    queue = records(len(pairs), QUEUE)
    queue["session"], queue["accelerator"] = zip(*pairs, strict=True)
    return Cluster(
        board=board,
        sessions=sessions,
        accelerators=accelerators,
        queues=queue,
        waiting=records((len(pairs), FIRST_RING), REQUEST),
        latency=latency,
        commands=records(commands or len(pairs) + len(spec.kinds) + 64, COMMAND),
    )


def believe(cluster: Cluster, tables: Sequence[np.ndarray], delays: Delays) -> None:
    """Change the profiles and delays that are assumed, between events.

    Args:
        cluster: Modified in place.
        tables: By session the profile on each kind of accelerator.   # M x (K, B+1) s
        delays: Of the network.
    """
    for index, table in enumerate(tables):
        cluster.latency[:, index, : table.shape[1]] = table
    cluster.board["d_control"], cluster.board["d_data"] = delays.control, delays.data
    cluster.board["d_response"] = delays.response
    cluster.sessions["budget"] = cluster.sessions["slo"] - delays.response


Policy = TypeVar("Policy", bound=tuple[Any, ...])  # a NamedTuple whose first field is the cluster


def grow(policy: Policy) -> Policy:
    """Return the policy with rings of twice the length; everything else is shared with the old one."""
    cluster: Cluster = policy[0]
    count, length = cluster.waiting.shape
    larger = records((count, 2 * length), REQUEST)
    for queue in range(count):
        positions = np.arange(cluster.queues[queue].tail - length, cluster.queues[queue].tail)
        positions = positions[positions >= 0]
        larger[queue, positions & (2 * length - 1)] = cluster.waiting[queue, positions & (length - 1)]
    return policy._replace(cluster=cluster._replace(waiting=larger))  # type: ignore[attr-defined, no-any-return]
