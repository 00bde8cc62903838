"""The grids of an ensemble's knobs: fine ones while their combinations are few enough to be one space.

Each model by itself has about 150 configurations, so three of them together have millions. Grids that the
operator gave stay as they are. Of the others values are left out one by one, always of the largest grid;
what runs, the smallest and the largest value stay (the middle one where what runs is at an end). Where that
is not enough, the models that compute least keep what they run, as few of them as possible: they have least
to gain.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tuner.errors import InvalidInput
from tuner.knobs import MAX_SIZE, Grids, Knob

__all__ = ["check_given", "fitted", "what_was_left_out"]

Grid: TypeAlias = tuple[float, ...]


def check_given(grids: Grids) -> None:
    """Refuse grids of the operator that are too many configurations even if no other knob is turned.

    Raises:
        InvalidInput: They are; names them.
    """
    size = math.prod(len(grid) for grid in grids.values())
    if size > MAX_SIZE:
        names = ", ".join(name for name, grid in grids.items() if len(grid) > 1)
        problem = f"their grids have {size} combinations, more than {MAX_SIZE}"
        raise InvalidInput(f"knobs {names}", problem, "use coarser grids")


def fitted(
    models: Mapping[str, Sequence[Knob]],
    running: Mapping[str, float],
    given: Collection[str],
    idlest: Sequence[str],
) -> list[Knob]:
    """Return the knobs of an ensemble with grids that have few enough combinations.

    Args:
        models: The knobs of each model.
        running: What the server runs.
        given: The knobs that have a grid of the operator's.
        idlest: The models; those that compute least come first.
    """
    knobs = [knob for model in idlest for knob in models[model]]
    grids = {knob.name: knob.grid for knob in knobs}
    kept = {knob.name: knob.grid if knob.name in given else _kept(knob, running) for knob in knobs}
    for model in idlest:
        if _size(kept) <= MAX_SIZE:
            break
        single = {knob.name: (_runs(knob, running),) for knob in models[model] if knob.name not in given}
        grids, kept = grids | single, kept | single
    while _size(grids) > MAX_SIZE:
        loses = max((name for name in grids if grids[name] != kept[name]), key=lambda name: len(grids[name]))
        grids[loses] = _without_one(grids[loses], kept[loses])
    return [_with_grid(knob, grids[knob.name]) for own in models.values() for knob in own]


def what_was_left_out(models: Mapping[str, Sequence[Knob]], after: Iterable[Knob]) -> list[str]:
    """Return a note on the values that the grids lost; none if they lost none.

    Args:
        models: The knobs of each model.
        after: The same, as they fit one space.
    """
    grids = {knob.name: knob.grid for knob in after}
    lost, fixed = [], []
    for model, knobs in models.items():
        thinner = [knob for knob in knobs if grids[knob.name] != knob.grid]
        if any(len(grids[knob.name]) == 1 for knob in thinner):
            fixed.append(model)
            continue
        for knob in thinner:
            gone = " ".join(knob.format(value) for value in knob.grid if value not in grids[knob.name])
            lost.append(f"{knob.name} {gone}")
    if not lost and not fixed:
        return []
    said = [f"the grids have more than {MAX_SIZE} combinations"]
    if lost:
        said.append(f"left out are {', '.join(lost)}")
    if fixed:
        said.append(f"what computes least keeps what it runs: {', '.join(fixed)}")
    said.append("choose with --knob MODEL.KNOB=VALUE,VALUE, with one value for what is not to be turned")
    return ["; ".join(said)]


def _size(grids: Grids) -> int:
    return math.prod(map(len, grids.values()))


def _runs(knob: Knob, running: Mapping[str, float]) -> float:
    return knob.nearest(running.get(knob.name, knob.default))


def _kept(knob: Knob, running: Mapping[str, float]) -> Grid:
    """Return the values that a grid does not lose: three of them, so that a step is not the whole way."""
    kept = {knob.grid[0], _runs(knob, running), knob.grid[-1]}
    return tuple(sorted(kept if len(kept) > 2 else {*kept, knob.grid[len(knob.grid) // 2]}))


def _without_one(grid: Grid, kept: Grid) -> Grid:
    """Return a grid without the value whose neighbours are closest, by their ratio.

    Args:
        grid: Has values that are not kept.
        kept: Values that stay, among them the first and the last.
    """
    spread = {
        value: above / below if below > 0 else math.inf
        for below, value, above in zip(grid, grid[1:], grid[2:], strict=False)
        if value not in kept
    }
    lost = min(spread, key=lambda value: spread[value])
    return tuple(value for value in grid if value != lost)


def _with_grid(knob: Knob, grid: Grid) -> Knob:
    return replace(knob, grid=grid, default=knob.default if knob.default in grid else grid[0])
