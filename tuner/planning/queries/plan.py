"""The plan of a query: budget, batch size and accelerators of every stage, beside those of other splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.errors import InvalidInput
from tuner.planning.queries.greedy import TOLERANCE
from tuner.planning.queries.query import Choices, Query
from tuner.planning.queries.rivals import accelerators, even_split
from tuner.planning.queries.split import Batches, best_split, choices_of

__all__ = ["QueryPlan", "StagePlan", "plan_query", "plan_within"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePlan:
    """What one stage is given."""

    name: str
    rate: float
    """requests/s"""
    budget: float
    """Time from the stage's request to its answer, s; the SLO of the stage as a session."""
    begin: float
    """Since the query's arrival, s, if all stages before take their whole budget."""
    batch: int
    latency: float
    """Execution time of that batch, s."""
    accelerators: float
    """Needed at this rate and batch size; a share of one if others have the rest."""

    @property
    def gathering(self) -> float:
        """Time from the first to the last request of a batch at this rate, s."""
        return (self.batch - 1) / self.rate


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryPlan:
    """The split of a query's SLO, and what it saves."""

    stages: tuple[StagePlan, ...]
    """In the order of the calls."""
    even_split: float | None
    """Accelerators needed if every stage gets the same part of the SLO; None if a stage cannot keep it."""

    @property
    def accelerators(self) -> float:
        """Needed by all stages."""
        return sum(stage.accelerators for stage in self.stages)

    @property
    def notes(self) -> tuple[str, ...]:
        """Batches that the rate does not fill within their stage's budget."""
        return tuple(
            f"{stage.name}: {stage.batch} requests take {stage.gathering * 1e3:.4g} ms to come at "
            f"{stage.rate:.4g}/s, longer than the budget of {stage.budget * 1e3:.4g} ms; `worst_case: true` "
            "plans with what can gather"
            for stage in self.stages
            if stage.gathering > stage.budget
        )

    @property
    def gain(self) -> float | None:
        """How many times the queries of the even split the same accelerators serve."""
        return None if self.even_split is None else self.even_split / self.accelerators

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``tuner plan query --json``."""
        return {
            "stages": [
                {
                    "name": stage.name,
                    "budget_ms": round(stage.budget * 1e3, 6),
                    "batch": stage.batch,
                    "accelerators": stage.accelerators,
                    "rate": stage.rate,
                    "latency_ms": round(stage.latency * 1e3, 6),
                }
                for stage in self.stages
            ],
            "accelerators": self.accelerators,
            "even_split": self.even_split,
            "notes": list(self.notes),
        }


def plan_query(query: Query) -> QueryPlan:
    """Return the split that needs the fewest accelerators.

    Raises:
        InvalidInput: No split meets the SLO, or the query is neither a tree nor a fork-join graph.
    """
    choices = choices_of(query)
    batches = best_split(query, choices)
    time = {name: float(each.time[_place(each, batches[name])]) for name, each in choices.items()}
    longest = query.through(time)
    return _plan(query, choices, batches, {name: time[name] * query.slo / longest[name] for name in time})


def plan_within(query: Query, budgets: Mapping[str, float]) -> QueryPlan:
    """Return the plan with given budgets: each stage executes the largest batch of use within its own.

    Args:
        query: What is planned.
        budgets: Of every stage, s.

    Raises:
        InvalidInput: There is not one budget for each stage, one is too short for any batch, or those along a
            path are longer than the SLO.
    """
    if set(budgets) != set(query.order):
        names = ", ".join(sorted(set(budgets) ^ set(query.order)))
        raise InvalidInput("budgets_ms", f"must name each stage once, but not so {names}", "name all stages")
    longest = max(query.through(dict(budgets)).values())
    if longest > query.slo * (1 + TOLERANCE):
        problem = f"take {longest * 1e3:.6g} ms along a path, longer than the SLO of {query.slo_ms:g} ms"
        raise InvalidInput("budgets_ms", problem, "lower some")
    choices = choices_of(query)
    batches = {}
    for name, each in choices.items():
        batches[name] = each.largest_within(budgets[name] * (1 + TOLERANCE))
        if not batches[name]:
            problem = f"{name} needs {float(each.time[0]) * 1e3:.6g} ms, but has {budgets[name] * 1e3:.6g} ms"
            raise InvalidInput("budgets_ms", problem, "raise it")
    return _plan(query, choices, batches, budgets)


def _place(choices: Choices, batch: int) -> int:
    return int(choices.batch.searchsorted(batch))


def _plan(
    query: Query, choices: dict[str, Choices], batches: Batches, budget: Mapping[str, float]
) -> QueryPlan:
    needed = accelerators(query, choices, batches)
    begin = dict.fromkeys(query.order, 0.0)
    for name in query.order:
        for call in query.by_name[name].next:
            begin[call.stage] = max(begin[call.stage], begin[name] + budget[name])
    even = even_split(query, choices)
    return QueryPlan(
        stages=tuple(
            StagePlan(
                name=name,
                rate=query.rates[name],
                budget=budget[name],
                begin=begin[name],
                batch=batches[name],
                latency=float(choices[name].latency[_place(choices[name], batches[name])]),
                accelerators=needed[name],
            )
            for name in query.order
        ),
        even_split=None if even is None else sum(accelerators(query, choices, even).values()),
    )
