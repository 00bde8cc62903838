"""Other ways to split a query's SLO, to compare with: evenly, and by Harpagon's latency-cost efficiency.

`even_split` is the baseline of Nexus (section 7.2): every stage gets the same part of the SLO.

`harpagon_split` is the greedy splitting of Harpagon (arXiv 2412.06161), as we understand its description:
every stage begins with its smallest batch; then the larger batch that saves most accelerators for each second
of latency is taken, again and again, while the SLO holds along every path. Two of its refinements are kept:
stages with the same callers and the same called stages grow together, as one of them alone lengthens the path
for all; and the search is repeated by the saving alone, and the cheaper result counts. Its dispatching, and
batches of several sizes for one stage, are left out: here splits alone are compared, under one formula.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from tuner.planning.queries.greedy import TOLERANCE, Groups, grow
from tuner.planning.queries.query import Choices, Query
from tuner.planning.queries.split import Batches

__all__ = ["accelerators", "even_budgets", "even_split", "harpagon_split"]

TRIED = 64
"""Batch sizes of each stage among which the greedy search chooses."""


def accelerators(query: Query, choices: dict[str, Choices], batches: Batches) -> dict[str, float]:
    """Return how many accelerators each stage needs with its batch size, ``R l(b) / b``."""
    return {
        name: query.rates[name] * float(each.work[np.searchsorted(each.batch, batches[name])])
        for name, each in choices.items()
    }


def even_split(query: Query, choices: dict[str, Choices]) -> Batches | None:
    """Return the batches if each stage gets an equal part of the SLO; None if a stage cannot keep its part.

    A part is the SLO divided by the number of stages on the longest path through the stage.
    """
    batches = {}
    for name, budget in even_budgets(query).items():
        batches[name] = choices[name].largest_within(budget * (1 + TOLERANCE))
    return batches if all(batches.values()) else None


def even_budgets(query: Query) -> dict[str, float]:
    """Return what the even split gives each stage, s."""
    depth = query.through(dict.fromkeys(query.order, 1.0))
    return {name: query.slo / depth[name] for name in query.order}


def harpagon_split(query: Query, choices: dict[str, Choices]) -> Batches:
    """Return the batches that the greedy search by latency-cost efficiency finds."""
    few = {name: _thinned(each, query.slo) for name, each in choices.items()}
    single: Groups = [(name,) for name in query.order]
    rules: tuple[Literal["efficiency", "saving"], ...] = ("efficiency", "saving")
    tried = [
        grow(query, few, dict.fromkeys(query.order, 0), groups, by)
        for groups in (single, list(_alike(query)))
        for by in rules
    ]
    found = [{name: int(few[name].batch[index]) for name, index in places.items()} for places in tried]
    return min(found, key=lambda batches: sum(accelerators(query, choices, batches).values()))


def _thinned(choices: Choices, slo: float) -> Choices:
    """Return at most ``TRIED`` of the batch sizes that execute within the SLO, evenly among them."""
    count = int(np.searchsorted(choices.time, slo, "right"))
    places = np.unique(np.linspace(0, count - 1, min(TRIED, count)).round().astype(int))
    return Choices(*(column[places] for column in choices))


def _alike(query: Query) -> Iterator[tuple[str, ...]]:
    """Yield the stages with the same callers and the same called stages, together."""
    callers: dict[str, list[str]] = {name: [] for name in query.order}
    for name in query.order:
        for call in query.by_name[name].next:
            callers[call.stage].append(name)
    alike: dict[object, list[str]] = {}
    for name in query.order:
        called = sorted(call.stage for call in query.by_name[name].next)
        alike.setdefault((tuple(callers[name]), tuple(called)), []).append(name)
    yield from map(tuple, alike.values())
