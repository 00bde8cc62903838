"""A Nexus cluster whose plan changes between epochs: every session has a queue at every backend.

:func:`replan` says which of them the frontends use, and in which batches. Requests that wait at a backend
that does not host their session any more are still served there: its model is unloaded when they are gone.
"""

from __future__ import annotations

import numpy as np

from tuner.scheduling.batching.nexus import BACKEND, Nexus, NexusOptions, make_rule
from tuner.scheduling.batching.nexus_frontend import make_frontends
from tuner.scheduling.batching.nexus_plan import Placement
from tuner.scheduling.cluster import ClusterSpec, build_cluster
from tuner.scheduling.vocabulary import records

__all__ = ["build_open", "replan"]


def build_open(spec: ClusterSpec, options: NexusOptions) -> Nexus:
    """Return the state at time 0; every request is refused until the first :func:`replan`."""
    sessions, accelerators = len(spec.sessions), len(spec.kinds)
    queues = [(session, backend) for backend in range(accelerators) for session in range(sessions)]
    queues += [(session, -1) for session in range(sessions)]  # where requests are refused
    backends = records(accelerators, BACKEND)
    for backend in range(accelerators):
        backends[backend].first, backends[backend].count = backend * sessions, sessions
    cluster = build_cluster(spec, queues=queues, commands=sessions + 2)
    refused = [[(accelerators * sessions + session, 1.0)] for session in range(sessions)]
    frontends = make_frontends(refused, options.frontends)
    batch, nearer = np.ones(len(queues), np.int64), np.full(len(queues), -np.inf)
    return Nexus(cluster, frontends, backends, batch, nearer, make_rule(options))


def replan(policy: Nexus, plan: Placement) -> Nexus:
    """Return the policy under another plan; its queues and batches are shared, and modified in place.

    Args:
        policy: The state, between two events.
        plan: The plan of the epoch; all its models are loaded.
    """
    sessions = policy.cluster.sessions.size
    refuse = policy.backends.size * sessions
    rates: list[list[tuple[int, float]]] = [[] for _ in range(sessions)]
    for backend, row in enumerate(plan.backends):
        for share in row:
            queue = backend * sessions + share.session
            policy.batch[queue] = share.batch
            rates[share.session].append((queue, share.rate))
    for session, own in enumerate(rates):
        if not own:
            own.append((refuse + session, 1.0))
    return policy._replace(frontends=make_frontends(rates, policy.frontends.chosen.shape[0]))
