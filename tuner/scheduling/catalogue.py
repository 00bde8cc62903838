"""The scheduling policies by name: modules with `build` and an options class, imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from tuner.errors import check_choice
from tuner.scheduling.cluster import ClusterSpec, NoOptions

__all__ = ["BATCHING_POLICIES", "DISTRIBUTION_POLICIES", "POLICIES", "build_policy", "options_of"]

BATCHING_POLICIES = ("symphony", "eager", "clockwork", "nexus", "timeout", "clipper")
"""They make batches of requests of one size."""
DISTRIBUTION_POLICIES = ("kairos", "ribbon", "drs", "clkwrk", "oracle")
"""They send each request, which has a size, alone to one of several unlike accelerators."""
POLICIES = (*BATCHING_POLICIES, *DISTRIBUTION_POLICIES)


def options_of(name: str) -> type:
    """Return the dataclass of a policy's options.

    Raises:
        InvalidInput: There is no such policy; lists those there are.
    """
    return cast(type, getattr(_module(name), f"{name.capitalize()}Options", NoOptions))


def build_policy(name: str, spec: ClusterSpec, options: Any = None) -> Any:
    """Return the state of a policy at time 0.

    Args:
        name: One of ``POLICIES``.
        spec: Sessions and accelerators.
        options: An instance of :func:`options_of`; the defaults if None.

    Raises:
        InvalidInput: There is no such policy.
    """
    return _module(name).build(spec, options)


def _module(name: str) -> Any:
    check_choice("policy", name, POLICIES)
    kind = "distribution" if name in DISTRIBUTION_POLICIES else "batching"
    return import_module(f"tuner.scheduling.{kind}.{name}")
