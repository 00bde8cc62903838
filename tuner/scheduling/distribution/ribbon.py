"""Ribbon's distribution: first come, first served, to the fastest idle instance (Kairos, section 7).

It prefers base types when several instances are idle. It ignores the sizes of requests, so that large ones
go to instances that cannot meet the SLO. That is DeepRecSys's distribution with a threshold that no request
exceeds.
"""

from __future__ import annotations

import numpy as np

from tuner.scheduling.cluster import ClusterSpec, NoOptions, build_cluster
from tuner.scheduling.distribution.drs import Drs
from tuner.scheduling.distribution.pool import make_pool, speed_order

__all__ = ["build", "derive"]


def build(spec: ClusterSpec, options: NoOptions | None = None) -> Drs:  # noqa: ARG001 - as the others
    """Return the state at time 0: every request counts as small, and every instance as auxiliary."""
    cluster = build_cluster(spec)
    base = np.zeros((len(spec.kinds), len(spec.sessions)), np.bool_)
    threshold = np.full(len(spec.sessions), np.iinfo(np.int64).max)
    return Drs(cluster, make_pool(cluster), speed_order(cluster), base, threshold)


def derive(policy: Drs, options: NoOptions | None = None) -> None:  # noqa: ARG001 - as the others
    """Find out which instances are fast, by what the cluster assumes. ``policy`` is modified in place."""
    policy.order[:] = speed_order(policy.cluster)
