"""A fake policy with bad behaviour to choose: a driver must survive it, and a good policy never shows it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat
from tuner.scheduling.cluster import ClusterSpec, build_cluster
from tuner.scheduling.policy import Functions, register
from tuner.scheduling.requests import begin, dispatch, push
from tuner.scheduling.vocabulary import OK, Cluster

__all__ = ["AHEAD", "FORGETFUL", "PERIODIC", "SLEEPLESS", "Odd", "build"]

AHEAD = 0  # sends every request at once, alone, to accelerators in turn, however many wait there
FORGETFUL = 1  # answers nothing
SLEEPLESS = 2  # wants to be woken at once, for ever, after the first request
PERIODIC = 3  # like AHEAD, and wants to be woken every second, for ever


class Odd(NamedTuple):
    """The state; all arrays are modified in place."""

    cluster: Cluster
    manner: np.ndarray  # (1,) one of the above


def build(spec: ClusterSpec, manner: int = AHEAD) -> Odd:
    """Return the state at time 0."""
    policy = Odd(build_cluster(spec), np.array([manner]))
    if manner == PERIODIC:
        policy.cluster.board[0].wake_at = 1.0
    return policy


@njit_flat
def arrive(policy: Odd, session: int, source: int, number: int, now: float) -> int:  # noqa: ARG001
    """See :func:`tuner.scheduling.policy.arrive`."""
    cluster = policy.cluster
    begin(cluster, now)
    status = push(cluster, session, number, now)
    if status != OK:
        return status
    if policy.manner[0] == SLEEPLESS:
        cluster.board[0].wake_at = now
    if policy.manner[0] == AHEAD or policy.manner[0] == PERIODIC:
        accelerator = number % cluster.accelerators.size
        dispatch(cluster, session, 1, accelerator, max(now, cluster.accelerators[accelerator].free_at))
    return OK


@njit_flat
def finish(policy: Odd, accelerator: int, now: float) -> int:
    """See :func:`tuner.scheduling.policy.finish`."""
    begin(policy.cluster, now)
    policy.cluster.accelerators[accelerator].outstanding -= 1
    return OK


@njit_flat
def wake(policy: Odd, now: float) -> int:
    """See :func:`tuner.scheduling.policy.wake`."""
    begin(policy.cluster, now)
    if policy.manner[0] == PERIODIC:
        policy.cluster.board[0].wake_at = now + 1.0
    return OK


register(Odd, Functions(arrive, finish, wake))
