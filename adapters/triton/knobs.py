"""The knobs of a Triton model: which it has, their grids, and which values make sense."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from tuner.adapters.live.knobs import (
    DELAY_GRID,
    MICROSECOND,
    KnobKind,
    batch_grid,
    batch_kind,
    containing,
    delay_kind,
)
from tuner.adapters.triton.batching import own_rules
from tuner.adapters.triton.configuration import (
    DELAY,
    INSTANCES,
    MAX_BATCH_SIZE,
    PARAMETER,
    is_ensemble,
    is_stateful,
    model_limit,
    read_configuration,
)
from tuner.adapters.triton.instance_groups import GROUP, are_alike, count_places, on_gpu
from tuner.errors import InvalidInput
from tuner.knobs import ApplyCost, KnobSpace, Role

__all__ = ["batch_sizes", "below_ensemble", "forms_batches", "kind_of", "knob_space", "left_alone"]

MOST_INSTANCES = 64
MOST_DEFAULT_INSTANCES = 4
LARGEST_PARAMETER = 2**31
STATEFUL = (
    "the model has sequences of requests (sequence_batching), and a reload would end those that are open, so "
    "it has no knob by default; how many instances there are (instances=1,2) can change without a reload"
)


def knob_space(
    config: Mapping[str, Any], grids: Mapping[str, tuple[float, ...]], *, cores: int, rows: int = 1
) -> KnobSpace:
    """Return the space of the knobs that a model has.

    Args:
        config: The model's configuration.
        grids: Grids in place of the default ones, which contain what runs, and of further ``parameters.KEY``
            and ``instances.GROUP``.
        cores: CPU cores of the server's machine, as far as known: the default grid of instances ends there.
        rows: Rows of the largest request seen.

    Raises:
        InvalidInput: A grid is for a knob that the model does not have, or has an unusable value.
    """
    defaults, stateful = _default_grids(config, cores, rows), is_stateful(config)
    for name in grids:
        if name not in defaults and not name.startswith((PARAMETER, GROUP)):
            known = ", ".join([*defaults, "parameters.KEY", "instances.GROUP"])
            raise InvalidInput(f"knob {name}", "the model has no such knob", f"its knobs: {known}")
    if INSTANCES not in grids and (stateful or any(name.startswith(GROUP) for name in grids)):
        defaults.pop(INSTANCES, None)  # where one group is turned, one number for all makes no sense
    names = [*defaults, *[name for name in grids if name not in defaults]]
    running = read_configuration(config, names)  # checks that the parameters exist
    limit = model_limit(config)
    knobs = []
    for name in names:
        kind = kind_of(name, limit)
        if stateful and not name.startswith(PARAMETER):
            kind = replace(kind, apply_cost=ApplyCost.IN_PLACE)
        knobs.append(kind.knob(name, grids.get(name) or containing(defaults[name], running[name], kind)))
    places = count_places(config)
    return KnobSpace([replace(knob, places=places) if knob.name == INSTANCES else knob for knob in knobs])


def batch_sizes(config: Mapping[str, Any], least: int) -> tuple[float, ...]:
    """Return the default grid of a model's batch limit, which contains what runs and the model's own limit.

    Args:
        config: The model's configuration.
        least: The largest limit of the ensembles that name it, or the rows of the largest request seen; no
            value is below it, except 1.
    """
    limit, running = model_limit(config), read_configuration(config, [MAX_BATCH_SIZE])[MAX_BATCH_SIZE]
    return tuple(sorted({*_batch_grid(config, least), float(limit), float(running)}))


def below_ensemble(knob: str, size: float, least: int) -> InvalidInput:
    """Return the error to raise for a model's batch limit below that of an ensemble that names the model.

    Args:
        knob: The name of the knob.
        size: Its value.
        least: The ensemble's limit.
    """
    problem = f"{size:g} is below {least}, the max_batch_size of an ensemble that it is in"
    return InvalidInput(f"knob {knob}", problem, "Triton would stop serving the ensemble")


def left_alone(config: Mapping[str, Any], names: Collection[str]) -> list[str]:
    """Return why a model lacks knobs that others have by default; nothing if it does not, or was given some.

    Args:
        config: The model's configuration.
        names: The names of its knobs.
    """
    return [STATEFUL] if is_stateful(config) and not names else []


def forms_batches(config: Mapping[str, Any]) -> bool:
    """Whether a model can have the dynamic batcher; stateful ones and ensembles have their own schedulers."""
    return model_limit(config) > 1 and not ("sequence_batching" in config or is_ensemble(config))


def _default_grids(config: Mapping[str, Any], cores: int, rows: int) -> dict[str, tuple[float, ...]]:
    grids = {}
    if forms_batches(config):
        grids[MAX_BATCH_SIZE] = _batch_grid(config, rows)
        grids[DELAY] = DELAY_GRID
    if are_alike(config) and not is_ensemble(config):
        most = MOST_DEFAULT_INSTANCES if on_gpu(config) else max(1, min(MOST_DEFAULT_INSTANCES, cores))
        grids[INSTANCES] = tuple(float(count) for count in range(1, most + 1))
    return grids


def _batch_grid(config: Mapping[str, Any], rows: int) -> tuple[float, ...]:
    """Return default batch limits; not 1 where the operator has rules that need the dynamic batcher."""
    sizes = batch_grid(rows, model_limit(config))
    return tuple(size for size in sizes if size > 1) if own_rules(config) else sizes


def kind_of(name: str, limit: int) -> KnobKind:
    """Return the kind of the knob with a name.

    Args:
        name: Of the knob.
        limit: The model's own ``max_batch_size``.
    """
    if name == MAX_BATCH_SIZE:
        return batch_kind(limit, "the model's own max_batch_size is the limit")
    if name == DELAY:
        return replace(delay_kind(MAX_BATCH_SIZE), step=MICROSECOND)
    # Changing instances is a reload, too, but for stateful models: configuration.py says why not in place.
    # One group of several has no role, because it is not all of the server's parallelism.
    if name == INSTANCES:
        return KnobKind(least=1, most=MOST_INSTANCES, default=1.0, role=Role.PARALLELISM)
    if name.startswith(GROUP):
        return KnobKind(least=1, most=MOST_INSTANCES, default=1.0)
    return KnobKind(least=-LARGEST_PARAMETER, most=LARGEST_PARAMETER)
