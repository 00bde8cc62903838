"""Grows the batches of a query one step after the other, while the SLO holds along every path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from tuner.planning.queries.query import Choices, Query

__all__ = ["TOLERANCE", "Groups", "grow"]

TOLERANCE = 1e-9
"""Relative; sums of times are compared with it."""

Groups = Sequence[tuple[str, ...]]
"""Stages that grow together."""


class _Step(NamedTuple):
    worth: float
    places: dict[str, int]


def grow(
    query: Query,
    choices: dict[str, Choices],
    place: dict[str, int],
    groups: Groups,
    by: Literal["efficiency", "saving"],
) -> dict[str, int]:
    """Return the places of the batch sizes among the choices when no stage can grow any more.

    Args:
        query: With its SLO.
        choices: Of every stage.
        place: Where each stage begins; within the SLO.
        groups: All stages, once each.
        by: The next step is the one that saves most accelerators, or most for each second of its time.
    """
    place = dict(place)
    while True:
        times = {name: float(choices[name].time[index]) for name, index in place.items()}
        longest = query.through(times)
        slack = {name: query.slo * (1 + TOLERANCE) - longest[name] for name in times}
        steps = [_best(query, choices, place, slack, group, by=by) for group in groups]
        step = max((step for step in steps if step is not None), key=lambda step: step.worth, default=None)
        if step is None:
            return place
        place |= step.places


def _best(
    query: Query,
    choices: dict[str, Choices],
    place: dict[str, int],
    slack: dict[str, float],
    group: tuple[str, ...],
    *,
    by: str,
) -> _Step | None:
    """Return the best step of a group whose members may all take the same, longer time."""
    before = max(float(choices[name].time[place[name]]) for name in group)
    most = min(float(choices[name].time[place[name]]) + slack[name] for name in group)
    times = np.concatenate([choices[name].time[place[name] + 1 :] for name in group])  # (k,) s
    times = times[times <= most]
    if not times.size:
        return None
    saved, places = np.zeros(times.size), {}
    for name in group:
        found = np.searchsorted(choices[name].time, times * (1 + TOLERANCE), "right") - 1
        places[name] = np.maximum(found, place[name])  # (k,)
        saved += query.rates[name] * (choices[name].work[place[name]] - choices[name].work[places[name]])
    worth = saved / np.maximum(times - before, TOLERANCE) if by == "efficiency" else saved
    chosen = int(worth.argmax())
    return _Step(float(worth[chosen]), {name: int(places[name][chosen]) for name in group})
