"""The knobs of a model on TensorFlow Serving: which there are, their grids, and which values make sense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tuner.adapters.live.knobs import (
    DELAY_GRID,
    MICROSECOND,
    KnobKind,
    batch_grid,
    batch_kind,
    containing,
    delay_kind,
)
from tuner.adapters.tfserving.batching import ALLOWED, ENQUEUED, MAX_BATCH_SIZE, TIMEOUT, VERSION_KNOBS
from tuner.adapters.tfserving.restart_command import BATCH_THREADS, RESTART_KNOBS
from tuner.errors import InvalidInput
from tuner.knobs import ApplyCost, KnobSpace, Role

__all__ = ["kind_of", "knob_space"]

MOST_THREADS = 1024
MOST_ENQUEUED = 1_000_000
MOST_ALLOWED = 14
"""Halving a limit more often leads nowhere."""
WITHOUT_RESTART = {Role.PARALLELISM: 0.0}
"""What the server does where its threads are no knobs: by default it has a batch thread for each core."""


def knob_space(
    grids: Mapping[str, tuple[float, ...]],
    running: Mapping[str, float],
    *,
    versions: bool,
    restart: bool,
    limit: int,
    rows: int,
    cores: int,
) -> KnobSpace:
    """Return the space of the knobs that can be turned.

    Args:
        grids: Grids in place of the default ones, which contain what runs; naming ``max_enqueued_batches`` or
            ``allowed_batch_sizes`` makes them knobs, which they are not by default.
        running: What the server runs, of all knobs that can be turned.
        versions: Whether new versions can be made.
        restart: Whether the operator declared how to restart the server.
        limit: Largest ``max_batch_size``.
        rows: Rows of the largest request seen.
        cores: CPU cores of the server's machine, as far as known: the default grids of threads end there.

    Raises:
        InvalidInput: A grid is for a knob that there is not, or has an unusable value.
    """
    possible = [*(VERSION_KNOBS if versions else ()), *(RESTART_KNOBS if restart else ())]
    defaults: dict[str, tuple[float, ...]] = {}
    if versions:
        defaults[MAX_BATCH_SIZE] = batch_grid(rows, limit)
        defaults[TIMEOUT] = DELAY_GRID
    if restart:
        fewer = tuple(float(2**power) for power in range(cores.bit_length()) if 2**power < cores)
        defaults |= dict.fromkeys(RESTART_KNOBS, (0.0, *fewer))  # 0 is as many as cores
    for name in grids:
        if name not in possible:
            raise InvalidInput(f"knob {name}", "cannot be turned", _hint(possible, name))
    names = [*defaults, *[name for name in possible if name in grids and name not in defaults]]
    knobs = []
    for name in names:
        kind = kind_of(name, limit)
        knobs.append(kind.knob(name, grids.get(name) or containing(defaults[name], running[name], kind)))
    return KnobSpace(knobs, fixed=None if restart else WITHOUT_RESTART)


def _hint(possible: list[str], name: str) -> str:
    if name in VERSION_KNOBS and not possible:
        return "name the model's folder with base_path= in the target"
    if name in RESTART_KNOBS:
        return "only a restart changes it: declare how with restart= in the target"
    return f"the knobs are {', '.join(possible) or 'none: add base_path= to the target'}"


def kind_of(name: str, limit: int) -> KnobKind:
    """Return the kind of the knob with a name.

    Args:
        name: Of the knob.
        limit: Largest ``max_batch_size``.
    """
    unbatched = (MAX_BATCH_SIZE, 1.0)  # there a batch has no queue and no other size
    if name == MAX_BATCH_SIZE:
        return batch_kind(limit)
    if name == TIMEOUT:
        return replace(delay_kind(MAX_BATCH_SIZE), step=MICROSECOND)
    if name == ENQUEUED:
        return KnobKind(least=0, most=MOST_ENQUEUED, default=0.0, idle_when=unbatched)
    if name == ALLOWED:
        hint = "it says how many sizes: 2 is the limit and half of it"
        return KnobKind(least=0, most=MOST_ALLOWED, hint=hint, default=0.0, idle_when=unbatched)
    return KnobKind(
        least=0,
        most=MOST_THREADS,
        hint="0 is the server's own choice",
        default=0.0,
        apply_cost=ApplyCost.RESTART,
        role=Role.PARALLELISM if name == BATCH_THREADS else Role.OTHER,
    )
