"""The scheduling policies by name: modules with `Options` and `build`, imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tuner.errors import InvalidInput
from tuner.scheduling.cluster import ClusterSpec

__all__ = ["POLICIES", "QUERY_POLICIES", "build_policy", "options_of"]

POLICIES = ("symphony", "eager", "clockwork", "nexus", "timeout", "clipper")
QUERY_POLICIES = ("kairos", "ribbon", "drs", "clkwrk", "oracle")
"""Those that distribute queries of many items to instances of mixed types."""


def options_of(name: str) -> type:
    """Return the dataclass of a policy's options.

    Raises:
        InvalidInput: There is no such policy; lists those there are.
    """
    kind: type = _module(name).Options
    return kind


def build_policy(name: str, spec: ClusterSpec, options: Any = None) -> Any:
    """Return the state of a policy at time 0.

    Args:
        name: One of ``POLICIES`` or ``QUERY_POLICIES``.
        spec: Sessions and accelerators.
        options: An instance of :func:`options_of`; the defaults if None.

    Raises:
        InvalidInput: There is no such policy.
    """
    return _module(name).build(spec, options)


def _module(name: str) -> Any:
    if name in QUERY_POLICIES:
        return import_module(f"tuner.scheduling.distribution.{name}")
    if name not in POLICIES:
        known = ", ".join((*POLICIES, *QUERY_POLICIES))
        raise InvalidInput("policy", f"there is no {name!r}", f"use one of {known}")
    return import_module(f"tuner.scheduling.batching.{name}")
