"""The policies in plain Python by name, for the benchmarks to drive."""

from __future__ import annotations

from tuner.experiments.benchmarks.rivals.eager import PlainEager
from tuner.experiments.benchmarks.rivals.plain import PlainPolicy
from tuner.experiments.benchmarks.rivals.symphony import PlainSymphony
from tuner.scheduling.cluster import ClusterSpec

__all__ = ["POLICIES", "build_plain"]

POLICIES = ("symphony", "eager")


def build_plain(policy: str, spec: ClusterSpec) -> PlainPolicy:
    """Return a policy at time 0.

    Args:
        policy: One of ``POLICIES``.
        spec: Sessions and accelerators of one kind.
    """
    return {"symphony": PlainSymphony, "eager": PlainEager}[policy](spec)
