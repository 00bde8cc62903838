"""Knobs of live servers: which values make sense, and the grids that suit any server that batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.errors import InvalidInput
from tuner.knobs import ApplyCost, Knob, KnobSpace, Role

__all__ = [
    "BATCH_GRID",
    "DELAY_GRID",
    "MICROSECOND",
    "KnobKind",
    "batch_grid",
    "batch_kind",
    "check",
    "containing",
    "delay_kind",
]

BATCH_GRID = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
DELAY_GRID = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02)
LONGEST_DELAY = 1.0
MICROSECOND = 1e-6
"""In which Triton and TensorFlow Serving count delays, s."""
STEP_ROUNDING = 1e-9
"""Part of a value by which it may miss a whole number of steps: floats cannot say every microsecond."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnobKind:
    """What a server makes of a knob, whatever its grid."""

    least: float
    most: float
    hint: str = ""
    """What to tell a user whose value is outside these bounds."""
    whole: bool = True
    """Whether it takes whole numbers only."""
    step: float = 0.0
    """The server counts in whole numbers of this and would round anything else; 0 if it does not count."""
    default: float | None = None
    """What the server does when nobody sets it; None if that depends on the model."""
    apply_cost: ApplyCost = ApplyCost.RELOAD
    unit: str = ""
    role: Role = Role.OTHER
    idle_when: tuple[str, float] | None = None
    """As of :class:`~tuner.knobs.Knob`."""

    def check(self, name: str, value: float) -> None:
        """Check a value of the knob with this name.

        Raises:
            InvalidInput: The server cannot use it.
        """
        if not self.least <= value <= self.most:
            problem = f"{value:g} is not between {self.least:g} and {self.most:g}"
            raise InvalidInput(f"knob {name}", problem, self.hint)
        if self.whole and value != int(value):
            raise InvalidInput(f"knob {name}", f"{value:g} is not a whole number")
        # What a server rounds it reads back as another value, which then looks like somebody else's change.
        rounded = round(value / self.step) * self.step if self.step else value
        if not math.isclose(value, rounded, rel_tol=STEP_ROUNDING):
            problem = f"{value:g} {self.unit} is not a multiple of {self.step:g} {self.unit}"
            raise InvalidInput(f"knob {name}", problem, "the server would round it")

    def knob(self, name: str, grid: tuple[float, ...]) -> Knob:
        """Make the knob with this name and grid.

        Raises:
            InvalidInput: The grid has a value that the server cannot use.
        """
        for value in grid:
            self.check(name, value)
        lowest = min(grid, default=0.0)  # an empty grid is refused by the knob itself
        return Knob(
            name=name,
            grid=grid,
            default=self.default if self.default in grid else lowest,
            apply_cost=self.apply_cost,
            unit=self.unit,
            role=self.role,
            idle_when=self.idle_when,
        )


def batch_kind(limit: int, hint: str = "") -> KnobKind:
    """Return the kind of a knob for the largest batch, of which 1 is no batching.

    Args:
        limit: Largest value.
        hint: What to tell a user whose value is beyond.
    """
    return KnobKind(least=1, most=limit, hint=hint, default=1.0, role=Role.BATCH)


def delay_kind(batch: str) -> KnobKind:
    """Return the kind of a knob for how long a batch waits for more requests.

    Args:
        batch: The knob for the largest batch. A batch of one waits for nobody, so the delay is idle there.
    """
    return KnobKind(
        least=0,
        most=LONGEST_DELAY,
        hint="write it with its unit, like 2ms",
        whole=False,
        default=0.0,
        unit="s",
        role=Role.DELAY,
        idle_when=(batch, 1.0),
    )


def batch_grid(rows: int, limit: int) -> tuple[float, ...]:
    """Return the default grid of the largest batch.

    Args:
        rows: Rows of the largest request seen. A server refuses requests of more rows than its limit, so
            smaller limits are left out, except 1: without batching there is no limit.
        limit: The model's own.
    """
    return tuple(size for size in BATCH_GRID if size == 1 or rows <= size <= limit)


def containing(grid: tuple[float, ...], running: float, kind: KnobKind) -> tuple[float, ...]:
    """Return a default grid that contains what runs, so that it is judged as itself and can come back.

    Args:
        grid: The default grid.
        running: The value that the server has. One that it could not be set to is left out.
        kind: The kind of the knob.
    """
    try:
        kind.check("", running)
    except InvalidInput:
        return grid
    return tuple(sorted({*grid, float(running)}))


def check(space: KnobSpace, configuration: Mapping[str, float], kind_of: Callable[[str], KnobKind]) -> None:
    """Check a configuration before it is applied; its values need not be on the grid.

    Args:
        space: The server's knobs.
        configuration: What is to be applied.
        kind_of: Returns the kind of the knob with a name.

    Raises:
        InvalidInput: A knob is unknown, missing or has an unusable value.
    """
    space.check_complete(configuration)
    for name in space.names:
        kind_of(name).check(name, configuration[name])
