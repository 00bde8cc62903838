"""The split of a query's SLO, found by trying all batch sizes of all stages."""

from __future__ import annotations

from itertools import product

from tuner.planning.queries import Choices, Query, accelerators


def exhaustive_split(query: Query, choices: dict[str, Choices]) -> float:
    """Return the fewest accelerators of all combinations that keep the SLO along every path."""
    names = list(choices)
    fewest = float("inf")
    for places in product(*(range(choices[name].batch.size) for name in names)):
        chosen = dict(zip(names, places, strict=True))
        times = {name: float(choices[name].time[place]) for name, place in chosen.items()}
        if _longest(query, query.order[0], times) <= query.slo:
            batches = {name: int(choices[name].batch[place]) for name, place in chosen.items()}
            fewest = min(fewest, sum(accelerators(query, choices, batches).values()))
    return fewest


def _longest(query: Query, name: str, time: dict[str, float]) -> float:
    """Return the time of the longest path from a stage on, path by path."""
    calls = query.by_name[name].next
    return time[name] + max((_longest(query, call.stage, time) for call in calls), default=0.0)
