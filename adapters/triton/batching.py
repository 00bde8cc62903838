"""The operator's ``dynamic_batching``, also where a knob has removed it, or sizes of it.

A limit of 1 removes the field, and a lower limit the preferred sizes above it, because Triton refuses those.
So what the operator wrote is kept on the server, in a parameter that means nothing to the model, until all of
it is back: the next run has to find it, even after a crash.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from tritonclient.grpc import model_config_pb2

__all__ = [
    "BATCHING",
    "DELAY_FIELD",
    "PREFERRED_FIELD",
    "batching_at",
    "keep_batching",
    "own_batching",
    "own_rules",
]

BATCHING = "dynamic_batching"
DELAY_FIELD = "max_queue_delay_microseconds"
PREFERRED_FIELD = "preferred_batch_size"
BATCHING_MARK = "servetune_dynamic_batching"
"""The parameter that holds the operator's ``dynamic_batching`` as JSON, without the delay: that is a knob."""


def own_batching(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operator's ``dynamic_batching`` without the delay, even if a knob has changed it.

    What stands in the field counts: the operator may have changed it since. The rest comes from what is kept.

    Args:
        config: What a server runs.
    """
    kept = _kept(config)
    if BATCHING not in config:
        return kept
    own = {name: value for name, value in config[BATCHING].items() if name != DELAY_FIELD}
    size = int(config.get("max_batch_size", 0))
    sizes = _chosen(_sizes(own), size)
    if sizes == _chosen(_fitting(kept, size), size):
        sizes = _sizes(kept)
    return _with_sizes(own, sizes)


def own_rules(config: Mapping[str, Any]) -> list[str]:
    """Return the fields of the operator's ``dynamic_batching`` that do more than form batches.

    Such as ``priority_levels``, ``default_queue_policy`` and ``preserve_ordering``: without batching Triton
    heeds none of them.

    Args:
        config: What a server runs.
    """
    return sorted(name for name, value in own_batching(config).items() if value and name != PREFERRED_FIELD)


def batching_at(own: Mapping[str, Any], size: int, delay: int) -> dict[str, Any]:
    """Return the ``dynamic_batching`` of a batch limit.

    Args:
        own: The operator's.
        size: The limit.
        delay: Longest wait for more requests, us.
    """
    batching = _with_sizes(own, _fitting(own, size))
    return {**batching, DELAY_FIELD: str(delay)} if delay else batching


def keep_batching(config: dict[str, Any], own: Mapping[str, Any]) -> None:
    """Store the operator's ``dynamic_batching`` in a parameter while something of it is missing.

    Args:
        config: What a server is to run; modified.
        own: The operator's.
    """
    parameters = config.setdefault("parameters", {})
    parameters.pop(BATCHING_MARK, None)
    if _is_incomplete(config, own):
        parameters[BATCHING_MARK] = {"string_value": json.dumps(own, sort_keys=True)}
    if not parameters:
        del config["parameters"]


def _is_incomplete(config: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    if BATCHING not in config:
        return bool(own)
    size = int(config["max_batch_size"])
    return _chosen(_fitting(own, size), size) != _sizes(own)


def _kept(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept in the parameter; nothing if it is nothing that Triton would take."""
    text = config.get("parameters", {}).get(BATCHING_MARK, {}).get("string_value", "")
    try:
        read = json.loads(text)
        if not isinstance(read, dict):
            return {}
        message = ParseDict(read, model_config_pb2.ModelDynamicBatching())
    except (ValueError, RecursionError, ParseError):
        return {}
    kept: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    kept.pop(DELAY_FIELD, None)
    return kept


def _sizes(batching: Mapping[str, Any]) -> list[int]:
    return [int(size) for size in batching.get(PREFERRED_FIELD, [])]


def _fitting(batching: Mapping[str, Any], limit: int) -> list[int]:
    return [size for size in _sizes(batching) if size <= limit]


def _chosen(sizes: list[int], limit: int) -> list[int]:
    """Return preferred sizes without what Triton fills in where none are given: [maximum]."""
    return [] if sizes == [limit] else sizes


def _with_sizes(batching: Mapping[str, Any], sizes: list[int]) -> dict[str, Any]:
    rest = {name: value for name, value in batching.items() if name != PREFERRED_FIELD}
    return copy.deepcopy({**rest, PREFERRED_FIELD: sizes} if sizes else rest)
