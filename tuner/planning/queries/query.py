"""A query: calls of several models, each on the outputs of others, under one SLO.

A stage is one of these models. Its calls name the stages that work on its outputs, and how many requests each
of its own requests makes there (gamma, Nexus, section 4.2). A stage that several others call waits for all of
them; its rate is the highest that one of them causes.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field
from pydantic import field_validator as check_field
from pydantic import model_validator as check_model

from tuner.files.schema import NamedOnce, NotNegative, Positive, Some, StrictPart
from tuner.planning.pools.catalogue import Line, SoundTable, check_line

__all__ = ["Call", "Choices", "Query", "QueryStage"]

FASTEST = 1e9
"""Requests/s."""
SLOWEST = 1e-6
"""Requests/s; less than one a week."""
LONGEST = 1e9
"""ms; more than a week."""
MOST_STAGES = 200
"""The split goes down into part after part; Python ends about a thousand calls down."""

Gamma = Annotated[float, Field(strict=True, gt=0, le=1e6)]
Count = Annotated[int, Field(strict=True, ge=1, le=10_000)]


class Call(StrictPart):
    """One stage calls another."""

    stage: str = Field(min_length=1)
    """The stage that is called."""
    gamma: Gamma = 1.0
    """Requests there for each request here, on average."""


class Choices(NamedTuple):
    """The batch sizes that are of use to a stage: a larger one always has a higher throughput."""

    batch: np.ndarray  # (k,) requests, rising
    latency: np.ndarray  # (k,) s, rising; of the execution
    time: np.ndarray  # (k,) s, rising; what a request takes, which is what the SLO bounds
    work: np.ndarray  # (k,) s of an accelerator for each request, falling

    def largest_within(self, budget: float) -> int:
        """Return the largest batch size that takes at most this time, s; 0 if none does."""
        place = int(np.searchsorted(self.time, budget, "right"))
        return int(self.batch[place - 1]) if place else 0


class QueryStage(StrictPart):
    """A model of the query, with its execution profile."""

    name: str = Field(min_length=1)
    profile_ms: SoundTable | None = None
    """Milliseconds by batch size; between the sizes the time is interpolated."""
    alpha_ms: Annotated[NotNegative, Field(le=LONGEST)] | None = None
    """Instead of a table: ms per request of the batch."""
    beta_ms: Annotated[NotNegative, Field(le=LONGEST)] | None = None
    """Per batch."""
    max_batch: Count | None = None
    next: tuple[Call, ...] = ()
    """The stages that work on its outputs."""

    @check_model(mode="after")
    def _has_one_profile(self) -> QueryStage:
        line = (self.alpha_ms is not None) + (self.beta_ms is not None)
        if line == 1 or (line > 0) == (self.profile_ms is not None):
            raise ValueError("give profile_ms, or alpha_ms and beta_ms")
        if self.alpha_ms is not None and self.beta_ms is not None:
            check_line(self.alpha_ms, self.beta_ms)
        if self.profile_ms is not None and self.max_batch and self.max_batch < self._smallest():
            raise ValueError(f"max_batch must be at least {self._smallest()}, the smallest of profile_ms")
        return self

    def _smallest(self) -> int:
        return 1 if self.profile_ms is None else min(self.profile_ms.root)

    def latency(self, longest: float) -> np.ndarray:
        """Return the execution times of batches of 1, of 2, and so on, while they are within a time, s."""
        if self.profile_ms is not None:
            profile: SoundTable | Line = self.profile_ms
        else:
            profile = Line(alpha_ms=self.alpha_ms or 0.0, beta_ms=self.beta_ms or 0.0)
        largest = min(profile.largest_batch(longest), self.max_batch or profile.largest_batch(longest))
        return profile.latency(np.arange(1, largest + 1))

    def choices(self, longest: float, rate: float | None) -> Choices:
        """Return the batch sizes that are of use.

        Args:
            longest: Time that an execution may take, s.
            rate: Requests/s, if a request's time is the worst case; None if it is the execution alone.
        """
        smallest = self._smallest()
        latency = self.latency(longest)[smallest - 1 :]
        batch = np.arange(smallest, smallest + latency.size)
        work = latency / batch
        better = np.concatenate([[True], work[1:] < np.minimum.accumulate(work)[:-1] * (1 - 1e-12)])
        batch, latency, work = batch[better], latency[better], work[better]
        if rate is None:
            return Choices(batch, latency, latency, work)
        waiting = np.maximum(latency, np.where(batch > 1, batch / rate, 0.0))
        return Choices(batch, latency, latency + waiting, work)


class Query(StrictPart):
    """A directed graph of stages with one SLO: a tree, or one whose branches join again."""

    slo_ms: Annotated[Positive, Field(le=LONGEST)]
    """From the query's arrival to the answer of its last stage."""
    rate: Annotated[float, Field(strict=True, ge=SLOWEST, le=FASTEST)]
    """Queries/s."""
    worst_case: Annotated[bool, Field(strict=True)] = False
    """Whether a request's time includes what it waits at worst: while its batch gathers, or for the batch
    before (Nexus, sections 4.1 and 6.1). Otherwise it is the execution alone (section 6.2)."""
    resolution_ms: Positive | None = None
    """Step of the time budgets; by default 1 ms, a whole part of it where the SLO is below 1000 ms, and
    several whole ms where it is above 20,000 ms."""
    stages: Annotated[tuple[QueryStage, ...], Some, NamedOnce, Field(max_length=MOST_STAGES)]

    @check_field("stages")
    @classmethod
    def _called_stages_exist(cls, stages: tuple[QueryStage, ...]) -> tuple[QueryStage, ...]:
        known = [stage.name for stage in stages]
        for stage in stages:
            called = [call.stage for call in stage.next]
            for name in called:
                if name not in known:
                    raise ValueError(
                        f"stage {stage.name!r} calls {name!r}, which is no stage; use {', '.join(known)}"
                    )
                if called.count(name) > 1:
                    raise ValueError(f"stage {stage.name!r} calls {name!r} twice; add up the gammas")
        return stages

    @check_model(mode="after")
    def _is_one_graph(self) -> Query:
        order = self.order
        if len(order) < len(self.stages):
            left = {stage.name: stage for stage in self.stages if stage.name not in order}
            raise ValueError(f"the query is cyclic: {' -> '.join(_circle(left))}")
        called = {call.stage for stage in self.stages for call in stage.next}
        roots = [stage.name for stage in self.stages if stage.name not in called]
        if len(roots) > 1:
            raise ValueError(f"a query begins with one stage, but nothing calls {' nor '.join(roots)}")
        return self

    @property
    def slo(self) -> float:
        """The SLO, s."""
        return self.slo_ms / 1e3

    @cached_property
    def by_name(self) -> dict[str, QueryStage]:
        """The stages."""
        return {stage.name: stage for stage in self.stages}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The stages, each after all that call it; those of a circle are left out."""
        waits = Counter(call.stage for stage in self.stages for call in stage.next)
        order = [stage.name for stage in self.stages if not waits[stage.name]]
        for name in order:  # grows
            for call in self.by_name[name].next:
                waits[call.stage] -= 1
                if not waits[call.stage]:
                    order.append(call.stage)
        return tuple(order)

    @cached_property
    def rates(self) -> dict[str, float]:
        """Requests/s of every stage."""
        rates = dict.fromkeys(self.order, 0.0)
        rates[self.order[0]] = self.rate
        for name in self.order:
            for call in self.by_name[name].next:
                rates[call.stage] = max(rates[call.stage], rates[name] * call.gamma)
        return rates

    def through(self, length: dict[str, float]) -> dict[str, float]:
        """Return the length of the longest path through every stage, given the length of each stage."""
        begin, rest = dict.fromkeys(self.order, 0.0), dict.fromkeys(self.order, 0.0)
        for name in self.order:
            for call in self.by_name[name].next:
                begin[call.stage] = max(begin[call.stage], begin[name] + length[name])
        for name in reversed(self.order):
            rest[name] = length[name] + max(
                (rest[call.stage] for call in self.by_name[name].next), default=0.0
            )
        return {name: begin[name] + rest[name] for name in self.order}

    def with_gammas(self, gammas: dict[tuple[str, str], float], rate: float) -> Query:
        """Return the same query with other gammas by (stage, stage that it calls), at another rate."""
        stages = tuple(
            stage.model_copy(
                update={
                    "next": tuple(
                        call.model_copy(update={"gamma": gammas.get((stage.name, call.stage), call.gamma)})
                        for call in stage.next
                    )
                }
            )
            for stage in self.stages
        )
        return self.model_copy(update={"stages": stages, "rate": rate})


def _circle(left: dict[str, QueryStage]) -> list[str]:
    """Return the names along a circle, given the stages of which each is in one or behind one."""
    callers = {call.stage: name for name, stage in left.items() for call in stage.next if call.stage in left}
    path = [next(iter(callers))]
    while path[-1] not in path[:-1]:
        path.append(callers[path[-1]])
    return path[path.index(path[-1]) :][::-1]
