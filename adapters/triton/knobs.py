"""The knobs of a Triton model: which it has, their grids, and which values make sense."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tuner.adapters.triton.configuration import (
    DELAY,
    INSTANCES,
    MAX_BATCH_SIZE,
    PARAMETER,
    model_limit,
    read_configuration,
)
from tuner.adapters.triton.instance_groups import GROUP, are_alike, on_gpu
from tuner.errors import InvalidInput
from tuner.knobs import ApplyCost, Configuration, Knob, KnobSpace, Role

__all__ = ["check", "knob_space"]

BATCH_GRID = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
DELAY_GRID = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02)
MOST_INSTANCES = 64
MOST_DEFAULT_INSTANCES = 4
LONGEST_DELAY = 1.0
LARGEST_PARAMETER = 2**31
ROLES = {MAX_BATCH_SIZE: Role.BATCH, DELAY: Role.DELAY, INSTANCES: Role.PARALLELISM}
"""One group of several (``instances.NAME``) has no role: it is not all of the server's parallelism."""


def knob_space(
    config: Mapping[str, Any], grids: Mapping[str, tuple[float, ...]], *, cores: int, rows: int = 1
) -> KnobSpace:
    """Return the space of the knobs that a model has.

    Args:
        config: The model's configuration.
        grids: Grids in place of the default ones, and of further ``parameters.KEY`` and ``instances.GROUP``.
        cores: CPU cores of the server's machine, as far as known: the default grid of instances ends there.
        rows: Rows of the largest request seen: smaller batch limits (except 1: no batching) are left out.

    Raises:
        InvalidInput: A grid is for a knob that the model does not have, or has an unusable value.
    """
    defaults = _default_grids(config, cores, rows)
    if any(name.startswith(GROUP) for name in grids) and INSTANCES not in grids:
        defaults.pop(INSTANCES, None)  # one group is turned, so one number for all makes no sense
    for name in grids:
        if name not in defaults and not name.startswith((PARAMETER, GROUP)):
            known = ", ".join([*defaults, "parameters.KEY", "instances.GROUP"])
            raise InvalidInput(f"knob {name}", "the model has no such knob", f"its knobs: {known}")
    names = [*defaults, *[name for name in grids if name not in defaults]]
    read_configuration(config, names)  # checks that the parameters exist
    limit = model_limit(config)
    return KnobSpace([_knob(name, grids.get(name) or defaults[name], limit) for name in names])


def _default_grids(config: Mapping[str, Any], cores: int, rows: int) -> dict[str, tuple[float, ...]]:
    grids = {}
    limit = model_limit(config)
    # Sequence and ensemble models have schedulers of their own in the place of the dynamic batcher.
    if limit > 1 and not {"sequence_batching", "ensemble_scheduling"} & set(config):
        grids[MAX_BATCH_SIZE] = tuple(size for size in BATCH_GRID if size == 1 or rows <= size <= limit)
        grids[DELAY] = DELAY_GRID
    if are_alike(config) and "ensemble_scheduling" not in config:
        most = MOST_DEFAULT_INSTANCES if on_gpu(config) else max(1, min(MOST_DEFAULT_INSTANCES, cores))
        grids[INSTANCES] = tuple(float(count) for count in range(1, most + 1))
    return grids


def _knob(name: str, grid: tuple[float, ...], limit: int) -> Knob:
    for value in grid:
        _check_value(name, value, limit)
    natural = {MAX_BATCH_SIZE: 1.0, DELAY: 0.0}.get(name, 1.0 if _is_count(name) else grid[0])
    return Knob(
        name=name,
        grid=grid,
        default=natural if natural in grid else grid[0],
        apply_cost=ApplyCost.RELOAD,  # instances, too: configuration.py says why not in place
        unit="s" if name == DELAY else "",
        role=ROLES.get(name, Role.OTHER),
        idle_when=(MAX_BATCH_SIZE, 1.0) if name == DELAY else None,
    )


def check(space: KnobSpace, configuration: Configuration, limit: int) -> None:
    """Check a configuration before it is sent; its values need not be on the grid.

    Args:
        space: The model's knobs.
        configuration: What is to be applied.
        limit: The model's own ``max_batch_size``.

    Raises:
        InvalidInput: A knob is unknown, missing or has an unusable value.
    """
    space.check_complete(configuration)
    for name in space.names:
        _check_value(name, configuration[name], limit)


def _check_value(name: str, value: float, limit: int) -> None:
    def within(low: float, high: float, hint: str = "") -> None:
        if not low <= value <= high:
            raise InvalidInput(f"knob {name}", f"{value:g} is not between {low:g} and {high:g}", hint)

    checks: dict[str, Callable[[], None]] = {
        MAX_BATCH_SIZE: lambda: within(1, limit, "the model's own max_batch_size is the limit"),
        DELAY: lambda: within(0, LONGEST_DELAY, "write it with its unit, like 2ms"),
    }
    least, most = (1, MOST_INSTANCES) if _is_count(name) else (-LARGEST_PARAMETER, LARGEST_PARAMETER)
    checks.get(name, lambda: within(least, most))()
    if name != DELAY and value != int(value):
        raise InvalidInput(f"knob {name}", f"{value:g} is not a whole number")


def _is_count(name: str) -> bool:
    return name == INSTANCES or name.startswith(GROUP)
