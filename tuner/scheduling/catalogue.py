"""The scheduling policies by name: modules with `build` and an options class, imported when first used.

What a policy derives from profiles and delays beforehand, its module's `derive` computes, in `build` and
again when they change.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

import numpy as np

from tuner.errors import check_choice
from tuner.scheduling.cluster import ClusterSpec, Delays, NoOptions, believe

__all__ = [
    "BATCHING_POLICIES",
    "DISTRIBUTION_POLICIES",
    "POLICIES",
    "build_policy",
    "options_of",
    "set_beliefs",
]

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


def set_beliefs(
    name: str, policy: Any, tables: Sequence[np.ndarray], delays: Delays, options: Any = None
) -> None:
    """Change the profiles and delays that a policy assumes, between events.

    Args:
        name: Of the policy.
        policy: Modified in place.
        tables: By session the profile on each kind of accelerator.   # M x (K, B+1) s
        delays: Of the network.
        options: Those that it was built with; its defaults if None. Symphony takes new ones, too.

    Raises:
        InvalidInput: There is no such policy.
    """
    module = _module(name)
    believe(policy[0], tables, delays)
    if hasattr(module, "derive"):
        module.derive(policy, options)


def _module(name: str) -> Any:
    check_choice("policy", name, POLICIES)
    kind = "distribution" if name in DISTRIBUTION_POLICIES else "batching"
    return import_module(f"tuner.scheduling.{kind}.{name}")
