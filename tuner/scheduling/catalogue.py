"""The scheduling policies by name: modules with `build` and an options class, imported when first used.

What a policy derives from profiles and delays beforehand, its module's `derive` computes, in `build` and
again when they change. Third parties add such modules with the entry point group ``tuner.policies``; see
``docs/simulate.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np

from tuner.errors import InvalidInput, check_choice
from tuner.plugin import POLICIES as GROUP
from tuner.plugin import added, installed, load_module
from tuner.scheduling.cluster import ClusterSpec, Delays, NoOptions, believe

__all__ = [
    "BATCHING_POLICIES",
    "DISTRIBUTION_POLICIES",
    "POLICIES",
    "build_policy",
    "check_unshared",
    "distributes",
    "options_of",
    "policy_names",
    "set_beliefs",
]

BATCHING_POLICIES = ("symphony", "eager", "clockwork", "nexus", "timeout", "clipper")
"""They make batches of requests of one size."""
DISTRIBUTION_POLICIES = ("kairos", "ribbon", "drs", "clkwrk", "oracle")
"""They send each request, which has a size, alone to one of several unlike accelerators."""
POLICIES = (*BATCHING_POLICIES, *DISTRIBUTION_POLICIES)
"""Ours."""


def policy_names() -> list[str]:
    """Return the names of all policies that are installed, ours first."""
    return [*POLICIES, *(name for name in _added() if name not in POLICIES)]


def distributes(name: str) -> bool:
    """Whether a policy sends each request alone, by its size, and makes no batches.

    Raises:
        InvalidInput: There is no such policy, or it cannot be used.
    """
    if name in POLICIES:
        return name in DISTRIBUTION_POLICIES
    return bool(getattr(_module(name), "DISTRIBUTES", False))


def options_of(name: str) -> type:
    """Return the dataclass of a policy's options: `LeastSlackOptions` in the module of `least_slack`.

    Raises:
        InvalidInput: There is no such policy; lists those there are. Or it cannot be used.
    """
    words = name.replace("-", "_").split("_")
    own = "".join(word.capitalize() for word in words) + "Options"
    options = getattr(_module(name), own, NoOptions)
    if not (isinstance(options, type) and is_dataclass(options)):
        raise InvalidInput("policy", f"{own} of {name} is no dataclass", f"write @dataclass above {own}")
    return options


def build_policy(name: str, spec: ClusterSpec, options: Any = None) -> Any:
    """Return the state of a policy at time 0.

    Args:
        name: One of :func:`policy_names`.
        spec: Sessions and accelerators.
        options: An instance of :func:`options_of`; the defaults if None.

    Raises:
        InvalidInput: There is no such policy, or it cannot be used.
    """
    from tuner.scheduling.policy import is_registered  # takes numba, which the names do not need

    policy = _module(name).build(spec, options)
    if not is_registered(type(policy)):  # numba would say it in a hundred lines
        problem = f"`build` of {name} returns a {type(policy).__name__}, whose functions nobody registered"
        raise InvalidInput("policy", problem, f"write register({type(policy).__name__}, Functions(...))")
    return policy


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


def check_unshared(name: str) -> None:
    """Check that a policy or preset of ours shares its name with no installed policy, which would never run.

    Raises:
        InvalidInput: It does; names the entry point.
    """
    if (entry := _added().get(name)) is not None:
        problem = f"'{name}' is one of ours, and the entry point of {entry.value}"
        raise InvalidInput("policy", problem, "give that entry point another name, or remove its package")


def _module(name: str) -> Any:
    if name in POLICIES:
        check_unshared(name)
        kind = "distribution" if name in DISTRIBUTION_POLICIES else "batching"
        return import_module(f"tuner.scheduling.{kind}.{name}")
    check_choice("policy", name, policy_names())
    return load_module(_added()[name], "policy", "build")


@cache
def _added() -> dict[str, EntryPoint]:
    """Return what others have installed, by name. Kept: finding it takes longer than a small simulation."""
    entries = installed(GROUP)
    return {name: entries[name] for name in added(GROUP)}
