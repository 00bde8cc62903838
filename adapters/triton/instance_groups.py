"""How many instances a model has; it may have several groups of them, on several GPUs.

Triton makes ``count`` instances of a group on every GPU that the group lists. Groups that are alike, such as
one for each GPU, have one knob, ``instances``: the number in each group. Groups that differ, such as one on a
GPU and one on the CPU, have a knob each if the user names it: ``instances.NAME``, or ``instances.0`` by
position. Passive groups get no requests and are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.errors import InvalidInput

__all__ = ["GROUP", "INSTANCES", "are_alike", "count_places", "on_gpu", "read_instances", "set_instances"]

INSTANCES = "instances"
GROUP = "instances."

Group = dict[str, Any]


def are_alike(config: Mapping[str, Any]) -> bool:
    """Whether one number can say how many instances there are in each group."""
    return len({(group.get("kind"), int(group.get("count", 1))) for group in _active(config)}) <= 1


def on_gpu(config: Mapping[str, Any]) -> bool | None:
    """Whether instances run on GPUs; None if that is left to the model or to the server."""
    kinds = {group.get("kind") for group in _active(config)}
    if "KIND_GPU" in kinds:
        return True
    return False if kinds == {"KIND_CPU"} else None


def count_places(config: Mapping[str, Any]) -> int:
    """Return how often there are as many instances as `INSTANCES` says: on each GPU of each group."""
    return sum(max(len(group.get("gpus") or []), 1) for group in _active(config)) or 1


def read_instances(config: Mapping[str, Any], name: str) -> int:
    """Return how many instances there are in each group, or in the group that a knob names.

    Raises:
        InvalidInput: There is no such group.
    """
    groups = _active(config) if name == INSTANCES else [_named(config, name)]
    return int(groups[0].get("count", 1)) if groups else 1


def set_instances(config: dict[str, Any], name: str, count: int) -> None:
    """Set how many instances there are; the configuration is modified in place.

    Raises:
        InvalidInput: There is no such group.
    """
    if not config.get("instance_group"):
        config["instance_group"] = [{}]
    for group in _active(config) if name == INSTANCES else [_named(config, name)]:
        group["count"] = count


def _active(config: Mapping[str, Any]) -> list[Group]:
    return [group for group in config.get("instance_group") or [] if not group.get("passive", False)]


def _named(config: Mapping[str, Any], knob: str) -> Group:
    key = knob.removeprefix(GROUP)
    groups: list[Group] = list(config.get("instance_group") or [])
    for place, group in enumerate(groups):
        if key in (group.get("name"), str(place)):
            return group
    known = ", ".join(str(group.get("name", place)) for place, group in enumerate(groups)) or "none"
    raise InvalidInput(f"knob {knob}", "the model has no such instance group", f"its groups: {known}")
