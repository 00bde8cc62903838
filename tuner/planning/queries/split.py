"""Splits a query's SLO over its stages so that they need the fewest accelerators (Nexus, section 6.2).

``f(u, t)``, the fewest accelerators for the part u within the time t, is computed for all t on a grid, from
the leaves up: of a stage by its batch sizes, of parts side by side as the sum, of parts one after the other
as the least over all divisions of the time. A stage at rate R with batch b needs ``R l(b) / b`` accelerators.

Where we differ: f falls in few steps, so the least over all divisions is taken over the steps of one part
only; the paper's is quadratic in the grid. Graphs may fork and join; the paper's text stops at trees. Times
are rounded up to the grid, so that the SLO holds; what this leaves is used by growing batches afterwards.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tuner.errors import InvalidInput
from tuner.planning.queries.greedy import TOLERANCE, grow
from tuner.planning.queries.query import Choices, Query
from tuner.planning.queries.series_parallel import Part, Series, decompose

__all__ = ["Batches", "best_split", "choices_of"]

GRID = 1000
"""Steps of the SLO, at least, unless the query says otherwise."""
MOST_STEPS = 20_000
BLOCK = 1 << 20
"""Sums that are compared at once."""

Batches = dict[str, int]
"""The batch size of every stage."""


class _Least(NamedTuple):
    """The fewest accelerators of a part for each time on the grid, and how they are reached."""

    part: Part
    cost: np.ndarray  # (n+1,) accelerators; infinite where the time is too short
    split: tuple[np.ndarray, _Least, _Least] | None  # of a series: steps for the first   # (n+1,)
    inner: tuple[_Least, ...]  # of parts side by side


def choices_of(query: Query) -> dict[str, Choices]:
    """Return the batch sizes of every stage that are of use.

    Raises:
        InvalidInput: No split meets the SLO.
    """
    rates = query.rates if query.worst_case else {}
    choices = {name: stage.choices(query.slo, rates.get(name)) for name, stage in query.by_name.items()}
    shortest = query.through({name: float(each.time[0]) for name, each in choices.items()})
    longest = max(shortest.values())
    if longest > query.slo * (1 + TOLERANCE):
        path = [name for name in query.order if shortest[name] >= longest * (1 - TOLERANCE)]
        need = f"{' -> '.join(path)} need {longest * 1e3:.6g} ms with their smallest batches"
        problem = f"no split meets {query.slo_ms:g} ms: {need}{', at worst' if query.worst_case else ''}"
        raise InvalidInput("slo_ms", problem, "raise slo_ms, or use faster models")
    return choices


def best_split(query: Query, choices: dict[str, Choices]) -> Batches:
    """Return the batch sizes that need the fewest accelerators within the SLO.

    Raises:
        InvalidInput: The query is neither a tree nor a fork-join graph, or the grid is too fine.
    """
    step_ms = _usual_step(query.slo_ms) if query.resolution_ms is None else query.resolution_ms
    step = step_ms / 1e3
    steps = int(query.slo / step + TOLERANCE)
    if steps > MOST_STEPS:
        problem = f"{step_ms:g} ms cut the SLO into more than {MOST_STEPS:,} steps"
        raise InvalidInput("resolution_ms", problem, "raise it")
    least = _least(decompose(query), query, choices, step, steps)
    places = dict.fromkeys(choices, 0)  # the only split there is if what was rounded up is too long
    if np.isfinite(least.cost[steps]):
        budgets: dict[str, int] = {}
        _assign(least, steps, budgets)
        for name, each in choices.items():
            places[name] = int(np.searchsorted(_steps(each, step), budgets[name], "right")) - 1
    places = grow(query, choices, places, [(name,) for name in query.order], "saving")
    return {name: int(choices[name].batch[place]) for name, place in places.items()}


def _usual_step(slo_ms: float) -> float:
    """Return the step of the grid unless the query says otherwise, ms.

    Times are mostly measured, and SLOs set, in whole milliseconds. On this grid they are exact, so times that
    add up to the SLO fit into it. With an SLO above ``MOST_STEPS`` ms, a step is several milliseconds long.
    """
    return max(1.0, math.ceil(slo_ms / MOST_STEPS)) / math.ceil(GRID / slo_ms)


def _steps(choices: Choices, step: float) -> np.ndarray:
    """Return the time of each batch size in steps of the grid, rounded up.   # (k,)."""
    return np.ceil(choices.time / step - TOLERANCE).astype(np.int64)


def _least(part: Part, query: Query, choices: dict[str, Choices], step: float, steps: int) -> _Least:
    if isinstance(part, str):
        cost = np.full(steps + 1, np.inf)
        times = _steps(choices[part], step)
        fits = times <= steps
        cost[times[fits]] = query.rates[part] * choices[part].work[fits]  # of equal times the last, the least
        cost = np.minimum.accumulate(cost)
        return _Least(part, cost, None, ())
    inner = [_least(each, query, choices, step, steps) for each in part.parts]
    if isinstance(part, Series):
        last = inner[-1]
        for first in reversed(inner[:-1]):
            last = _one_after_the_other(first, last)
        return last
    return _Least(part, np.sum([each.cost for each in inner], axis=0), None, tuple(inner))


def _one_after_the_other(first: _Least, second: _Least) -> _Least:
    """Return the least cost of two parts over all divisions of the time between them."""
    jumps = [_jumps(first.cost), _jumps(second.cost)]
    swapped = jumps[1].size < jumps[0].size
    few, other, places = (second, first, jumps[1]) if swapped else (first, second, jumps[0])
    size = first.cost.size
    cost, given = np.full(size, np.inf), np.zeros(size, np.int64)
    padded = np.concatenate([np.full(size, np.inf), other.cost])  # (2n,)
    later = np.lib.stride_tricks.sliding_window_view(
        padded, size
    )  # row n - k: the other's cost k steps later
    time = np.arange(size)
    for some in np.array_split(places, -(-max(places.size, 1) * size // BLOCK)):
        if some.size:
            sums = few.cost[some, None] + later[size - some]  # (places, n)
            least = sums.argmin(axis=0)
            block = sums[least, time]
            better = block < cost
            cost[better], given[better] = block[better], some[least[better]]
    if swapped:
        given = time - given
    return _Least(Series((first.part, second.part)), cost, (given, first, second), ())


def _jumps(cost: np.ndarray) -> np.ndarray:
    """Return where a falling function becomes finite or falls; elsewhere more time changes nothing."""
    finite = np.isfinite(cost)
    fell = finite & np.concatenate([[True], ~finite[:-1] | (cost[1:] < cost[:-1])])
    return np.flatnonzero(fell)


def _assign(least: _Least, steps: int, budgets: dict[str, int]) -> None:
    """Note the steps of every stage, if the part has this many; ``budgets`` is modified in place."""
    if isinstance(least.part, str):
        budgets[least.part] = steps
    elif least.split is not None:
        given, first, second = least.split
        _assign(first, int(given[steps]), budgets)
        _assign(second, steps - int(given[steps]), budgets)
    for each in least.inner:
        _assign(each, steps, budgets)
