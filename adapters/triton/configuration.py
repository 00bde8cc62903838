"""Translates between a Triton model configuration and our knobs; pure functions on plain values.

Triton takes a new configuration as a whole: with a partial one the model loads and then refuses every
request. So the present configuration is read, the fields of the knobs are changed, and all of it is sent.

=====================  ==========================================================================
knob                   fields
=====================  ==========================================================================
``max_batch_size`` 1   no ``dynamic_batching``; the model's own ``max_batch_size``, so that requests
                       of several rows are still served; the operator's ``dynamic_batching`` is kept in
                       ``parameters.servetune_dynamic_batching``
``max_batch_size`` k   ``max_batch_size`` k and ``dynamic_batching``; the model's own limit is kept in
                       ``parameters.servetune_max_batch_size``, and so are preferred sizes above k
                       in ``parameters.servetune_dynamic_batching``
``max_queue_delay``    ``dynamic_batching.max_queue_delay_microseconds``
``instances``          ``count`` of every group of ``instance_group``
``instances.NAME``     ``count`` of one of them
``parameters.KEY``     ``parameters[KEY].string_value``
=====================  ==========================================================================

When only the number of instances changes, Triton 2.51 changes it in place. Such changes were seen to freeze
an overloaded server for good: in three of them, against none in a hundred reloads. So a parameter that the
model does not know is toggled with the number of instances, which makes the change a reload: see
:func:`toggle_reload_mark`. Not so with a stateful model: in place an instance goes once its sequences have
ended, while a reload fails every request of those that are open.

Without batching a delay has no effect: ``max_batch_size`` 1 with any delay is the same configuration, and it
reads back with delay 0.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from tuner.adapters.triton.batching import (
    BATCHING,
    DELAY_FIELD,
    PREFERRED_FIELD,
    batching_at,
    keep_batching,
    own_batching,
)
from tuner.adapters.triton.instance_groups import GROUP, INSTANCES, read_instances, set_instances
from tuner.errors import InvalidInput
from tuner.knobs import Configuration
from tuner.printable import one_line

__all__ = [
    "DELAY",
    "INSTANCES",
    "MAX_BATCH_SIZE",
    "PARAMETER",
    "ModelConfig",
    "differ_in_instances_only",
    "in_place_unless_marked",
    "is_batching",
    "is_ensemble",
    "is_stateful",
    "model_limit",
    "normal_form",
    "read_configuration",
    "rewrite",
    "toggle_reload_mark",
    "with_knobs_of",
]

ModelConfig = dict[str, Any]
"""A ``ModelConfig`` message as JSON: field names of the proto, 64-bit integers as strings."""

MAX_BATCH_SIZE = "max_batch_size"
DELAY = "max_queue_delay"
PARAMETER = "parameters."

LIMIT_MARK = "servetune_max_batch_size"
"""The parameter that holds the model's own limit while a knob lowers ``max_batch_size``.

The server keeps it, so that the next run finds it, even after a crash."""
LONGEST_NUMBER = 18
"""Digits of a whole number in a parameter; more would be no value that a knob can have."""
RELOAD_MARK = "servetune_reload"
"""The parameter that is added or removed to make Triton reload."""


def is_batching(config: Mapping[str, Any]) -> bool:
    """Whether the server may execute several requests together."""
    return BATCHING in config and int(config.get("max_batch_size", 0)) > 1


def is_ensemble(config: Mapping[str, Any]) -> bool:
    """Whether a model is made of others."""
    return "ensemble_scheduling" in config


def is_stateful(config: Mapping[str, Any]) -> bool:
    """Whether clients' requests belong together in sequences, of which a reload ends those that are open."""
    batching = config.get("sequence_batching")
    return batching is not None and not batching.get("iterative_sequence", False)


def read_configuration(config: Mapping[str, Any], names: Iterable[str]) -> Configuration:
    """Return the values of the named knobs.

    Raises:
        InvalidInput: A parameter is missing or not a whole number.
    """
    return Configuration({name: _read(config, name) for name in names})


def _read(config: Mapping[str, Any], name: str) -> float:
    if name == MAX_BATCH_SIZE:
        return int(config["max_batch_size"]) if is_batching(config) else 1
    if name == DELAY:
        return int(config[BATCHING].get(DELAY_FIELD, 0)) / 1e6 if is_batching(config) else 0.0
    if name == INSTANCES or name.startswith(GROUP):
        return read_instances(config, name)
    return _read_parameter(config, name)


def _read_parameter(config: Mapping[str, Any], name: str) -> int:
    key = name.removeprefix(PARAMETER)
    parameters = config.get("parameters", {})
    if key not in parameters:
        known = ", ".join(sorted(parameters)) or "none"
        raise InvalidInput(f"knob {name}", "the model has no such parameter", f"its parameters: {known}")
    text = str(parameters[key].get("string_value", ""))
    try:
        if len(text) <= LONGEST_NUMBER:
            return int(text)
    except ValueError:
        pass
    raise InvalidInput(
        f"knob {name}", f"its value '{one_line(text, 40)}' is not a whole number", "leave it out"
    )


def rewrite(present: Mapping[str, Any], configuration: Mapping[str, float]) -> ModelConfig:
    """Return the whole configuration with the knobs set to new values.

    Args:
        present: The server's configuration now; not modified.
        configuration: The knobs' new values.
    """
    config = copy.deepcopy(dict(present))
    if MAX_BATCH_SIZE in configuration:
        _set_batching(config, configuration)
    for name, value in configuration.items():
        if name == INSTANCES or name.startswith(GROUP):
            set_instances(config, name, int(value))
        elif name.startswith(PARAMETER):
            parameters = config.setdefault("parameters", {})
            parameters[name.removeprefix(PARAMETER)] = {"string_value": str(int(value))}
    return config


def with_knobs_of(
    original: Mapping[str, Any], present: Mapping[str, Any], names: Iterable[str]
) -> ModelConfig:
    """Return the configuration that puts the knobs of a model back.

    That is the original, to the letter. If anything but the knobs differs from it now, the model was deployed
    anew, and all but the knobs stays as it is.

    Args:
        original: The server's configuration at opening.
        present: The server's configuration now.
        names: The knobs' names.
    """
    found = read_configuration(original, names)
    as_found, after = (_without_reload_mark(rewrite(one, found)) for one in (original, present))
    return dict(original) if normal_form(after) == normal_form(as_found) else after


def _set_batching(config: ModelConfig, configuration: Mapping[str, float]) -> None:
    size, limit, own = int(configuration[MAX_BATCH_SIZE]), model_limit(config), own_batching(config)
    if size == 1:
        config.pop(BATCHING, None)
        config["max_batch_size"] = limit
        _keep_limit(config, limit, limit)
    else:
        config["max_batch_size"] = size
        config[BATCHING] = batching_at(own, size, round(configuration.get(DELAY, 0.0) * 1e6))
        _keep_limit(config, limit, size)
    keep_batching(config, own)


def _keep_limit(config: ModelConfig, limit: int, size: int) -> None:
    """Store the model's own limit in a parameter if the limit is lower now; remove the parameter if not."""
    parameters = config.setdefault("parameters", {})
    parameters.pop(LIMIT_MARK, None)
    if size != limit:
        parameters[LIMIT_MARK] = {"string_value": str(limit)}
    if not parameters:
        del config["parameters"]


def model_limit(config: Mapping[str, Any]) -> int:
    """Return the model's own ``max_batch_size``, even if a knob has lowered it; 0 if it takes no batches."""
    kept = config.get("parameters", {}).get(LIMIT_MARK, {}).get("string_value", "")
    present = int(config.get("max_batch_size", 0))
    return max(int(kept), present) if kept.isdecimal() and len(kept) <= LONGEST_NUMBER else present


def normal_form(config: Mapping[str, Any]) -> ModelConfig:
    """Return a configuration in the form in which the server returns it, so that two can be compared.

    The server fills in preferred sizes of [maximum] where none are given, and omits a delay of 0.
    """
    normal = copy.deepcopy(dict(config))
    if batching := normal.get(BATCHING):
        preferred = [int(size) for size in batching.get(PREFERRED_FIELD, [])]
        if preferred == [int(normal.get("max_batch_size", 0))]:
            del batching[PREFERRED_FIELD]
        if int(batching.get(DELAY_FIELD, 1)) == 0:
            del batching[DELAY_FIELD]
    return normal


def differ_in_instances_only(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether Triton would make this change in place."""
    old, new = normal_form(before), normal_form(after)
    groups = old.pop("instance_group", None), new.pop("instance_group", None)
    return old == new and groups[0] != groups[1]


def in_place_unless_marked(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether Triton would make this change in place and shall not: that of a stateful model it shall."""
    return differ_in_instances_only(before, after) and not is_stateful(after)


def toggle_reload_mark(config: Mapping[str, Any]) -> ModelConfig:
    """Return a configuration with the same meaning that Triton does not take for the same."""
    unmarked = _without_reload_mark(config)
    if RELOAD_MARK in config.get("parameters", {}):
        return unmarked
    return {**unmarked, "parameters": {**unmarked.get("parameters", {}), RELOAD_MARK: {"string_value": "1"}}}


def _without_reload_mark(config: Mapping[str, Any]) -> ModelConfig:
    unmarked = copy.deepcopy(dict(config))
    unmarked.get("parameters", {}).pop(RELOAD_MARK, None)
    if not unmarked.get("parameters"):
        unmarked.pop("parameters", None)
    return unmarked
