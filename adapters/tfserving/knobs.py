"""The knobs of a model on TensorFlow Serving: which there are, their grids, and which values make sense."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner.adapters.tfserving.batching import ALLOWED, ENQUEUED, MAX_BATCH_SIZE, TIMEOUT, VERSION_KNOBS
from tuner.adapters.tfserving.restart import BATCH_THREADS, RESTART_KNOBS
from tuner.errors import InvalidInput
from tuner.knobs import ApplyCost, Configuration, Knob, KnobSpace, Role

__all__ = ["BATCH_GRID", "check", "knob_space"]

BATCH_GRID = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
TIMEOUT_GRID = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02)
LONGEST_TIMEOUT = 1.0
MOST_THREADS = 1024
MOST_ENQUEUED = 1_000_000
MOST_ALLOWED = 14
"""Halving a limit more often leads nowhere."""
ROLES = {MAX_BATCH_SIZE: Role.BATCH, TIMEOUT: Role.DELAY, BATCH_THREADS: Role.PARALLELISM}
BY_ITSELF = {Role.PARALLELISM: 0.0}
"""What the server does where its threads are no knobs: by default it has a batch thread for each core."""


def knob_space(
    grids: Mapping[str, tuple[float, ...]],
    *,
    versions: bool,
    restart: bool,
    limit: int,
    rows: int,
    cores: int,
) -> KnobSpace:
    """Return the space of the knobs that can be turned.

    Args:
        grids: Grids in place of the default ones; naming ``max_enqueued_batches`` or ``allowed_batch_sizes``
            makes them knobs, which they are not by default.
        versions: Whether new versions can be made.
        restart: Whether the operator declared how to restart the server.
        limit: Largest ``max_batch_size``.
        rows: Rows of the largest request seen: smaller limits (except 1: no batching) are left out.
        cores: CPU cores of the server's machine, as far as known: the default grids of threads end there.

    Raises:
        InvalidInput: A grid is for a knob that there is not, or has an unusable value.
    """
    possible = [*(VERSION_KNOBS if versions else ()), *(RESTART_KNOBS if restart else ())]
    defaults: dict[str, tuple[float, ...]] = {}
    if versions:
        defaults[MAX_BATCH_SIZE] = tuple(s for s in BATCH_GRID if s == 1 or rows <= s <= limit)
        defaults[TIMEOUT] = TIMEOUT_GRID
    if restart:
        fewer = tuple(float(2**power) for power in range(cores.bit_length()) if 2**power < cores)
        defaults |= dict.fromkeys(RESTART_KNOBS, (0.0, *fewer))  # 0 is as many as cores
    for name in grids:
        if name not in possible:
            raise InvalidInput(f"knob {name}", "cannot be turned", _hint(possible, name))
    names = [*defaults, *[name for name in possible if name in grids and name not in defaults]]
    knobs = [_knob(name, grids.get(name) or defaults[name], limit) for name in names]
    return KnobSpace(knobs, fixed=None if restart else BY_ITSELF)


def _hint(possible: list[str], name: str) -> str:
    if name in VERSION_KNOBS and not possible:
        return "name the model's folder with base_path= in the target"
    if name in RESTART_KNOBS:
        return "only a restart changes it: declare how with restart= in the target"
    return f"the knobs are {', '.join(possible) or 'none: add base_path= to the target'}"


def _knob(name: str, grid: tuple[float, ...], limit: int) -> Knob:
    for value in grid:
        _check_value(name, value, limit)
    natural = 1.0 if name == MAX_BATCH_SIZE else 0.0
    return Knob(
        name=name,
        grid=grid,
        default=natural if natural in grid else grid[0],
        apply_cost=ApplyCost.RESTART if name in RESTART_KNOBS else ApplyCost.RELOAD,
        unit="s" if name == TIMEOUT else "",
        role=ROLES.get(name, Role.OTHER),
        idle_when=(MAX_BATCH_SIZE, 1.0) if name in (TIMEOUT, ENQUEUED, ALLOWED) else None,
    )


def check(space: KnobSpace, configuration: Configuration, limit: int) -> None:
    """Check a configuration before it is applied; its values need not be on the grid.

    Args:
        space: The knobs.
        configuration: What is to be applied.
        limit: Largest ``max_batch_size``.

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
        MAX_BATCH_SIZE: lambda: within(1, limit),
        TIMEOUT: lambda: within(0, LONGEST_TIMEOUT, "write it with its unit, like 2ms"),
        ENQUEUED: lambda: within(0, MOST_ENQUEUED),
        ALLOWED: lambda: within(0, MOST_ALLOWED, "it says how many sizes: 2 is the limit and half of it"),
    }
    checks.get(name, lambda: within(0, MOST_THREADS, "0 is the server's own choice"))()
    if name != TIMEOUT and value != int(value):
        raise InvalidInput(f"knob {name}", f"{value:g} is not a whole number")
