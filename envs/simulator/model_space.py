"""Knob spaces of server models: their own knobs, with grids that a user may replace."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from tuner.errors import InvalidInput
from tuner.knobs import Knob, KnobSpace

__all__ = ["model_space", "threads"]

MOST_THREADS = 64


def model_space(
    knobs: Sequence[Knob],
    grids: Mapping[str, tuple[float, ...]] | None,
    check: Callable[[str, float], str | None],
) -> KnobSpace:
    """Return a space of knobs with some grids replaced.

    Where a grid lacks the knob's own default, its middle takes that place.

    Args:
        knobs: The model's own.
        grids: Grids that replace theirs, by knob name.
        check: Says what is wrong with a value of a knob; None if it can be simulated.

    Raises:
        InvalidInput: A knob is unknown or a grid unusable.
    """
    own = {knob.name: knob for knob in knobs}
    for name, grid in (grids or {}).items():
        if name not in own:
            raise InvalidInput(f"knob {name}", "unknown", f"the simulated knobs are {', '.join(own)}")
        for value in grid:
            problem = check(name, value) if math.isfinite(value) else "is not finite"
            if problem:
                raise InvalidInput(f"knob {name}", f"{value:g} {problem}")
        values = tuple(float(value) for value in grid)
        middle = values[len(values) // 2] if values else math.nan
        start = own[name].default if own[name].default in values else middle
        own[name] = dataclasses.replace(own[name], grid=values, default=start)
    return KnobSpace(own.values())


def threads(value: float) -> str | None:
    """Say what is wrong with a number of threads."""
    return None if 0 <= value <= MOST_THREADS and value == int(value) else f"is not one of 0..{MOST_THREADS}"
