"""A scenario of a query: its stages on shared accelerators under a policy, with deadlines for each stage."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError, ValidationInfo
from pydantic import field_validator as check_field
from pydantic import model_validator as check_model

from tuner.cluster.pipelines.state import PipelineSpec, StageSpec
from tuner.cluster.requests import CHUNK, RequestStream
from tuner.cluster.scenario.form import SHORTEST
from tuner.cluster.scenario.options import check_policy, make_options, option_names
from tuner.cluster.scenario.scenario import endless
from tuner.cluster.scenario.session import Arrival, Count, Rate, Session, check_rate_fits
from tuner.cluster.simulation import Interval
from tuner.errors import InvalidInput
from tuner.files.schema import NotNegative, Positive, StrictPart, mistake
from tuner.planning.queries import Query, QueryPlan, plan_query, plan_within
from tuner.scheduling.batching.nexus_plan import make_placement
from tuner.scheduling.catalogue import (
    BATCHING_POLICIES,
    DISTRIBUTION_POLICIES,
    build_policy,
    distributes,
    policy_names,
)
from tuner.scheduling.cluster import ClusterSpec, SessionSpec

__all__ = ["Deadlines", "PipelineScenario"]

Deadlines = Literal["split", "carried", "proactive"]
SAMPLES = 10_000
"""Random sums of waiting times from which their quantile is taken."""
AMPLE = 1.1
"""Factor on the requests expected in a run, so that one chunk mostly holds all of them."""


class PipelineScenario(StrictPart):
    """A query on accelerators under a policy."""

    query: Query
    """Its stages, with the rate that is planned for."""
    policy: str
    options: dict[str, Any] = Field(default_factory=dict)
    """Of the policy."""
    deadlines: Deadlines = "split"
    """Of a stage: ``split``, its budget of the plan, from each request's arrival there; ``carried``, the end
    of that budget, counted from the query's arrival, so that what one stage does not use the next may;
    ``proactive``, what the SLO leaves after the stages behind it, as they are at present (PARD)."""
    budgets_ms: dict[str, Positive] | None = None
    """Of every stage, in place of those that are planned."""
    gathering_quantile: Annotated[float, Field(strict=True, gt=0, lt=1)] = 0.99
    """Of ``proactive``: the share of the queries whose batches, at the stages behind, gather within the time
    that a deadline leaves for it. PARD has 0.1, and another order (`options: {order: adaptive}`)."""
    accelerators: Count
    """All stages share them."""
    load: Rate | None = None
    """Queries/s that come, or a schedule of them; the planned rate if there is none."""
    arrival: Arrival = "poisson"
    """As of a session."""
    hop_ms: NotNegative = 0.0
    """From the end of a batch to the arrival at the next stage."""
    noise: Annotated[float, Field(strict=True, ge=0, le=1)] = 0.0
    """Standard deviation of execution times, relative to the profile."""
    seconds: Annotated[float, Field(strict=True, ge=SHORTEST, le=1e6)] = 10.0
    warmup_seconds: Annotated[NotNegative, Field(le=1e6)] = 1.0
    seed: Annotated[int, Field(strict=True, ge=0, lt=1 << 63)] = 0

    @check_field("policy")
    @classmethod
    def _policy_forms_batches(cls, name: str) -> str:
        known = [one for one in policy_names() if one not in DISTRIBUTION_POLICIES]
        check_policy(name, known, use=" for queries")
        if distributes(name):
            raise ValueError(
                f"{name} makes no batches, as queries need; use one of {', '.join(BATCHING_POLICIES)}"
            )
        return name

    @check_field("options")
    @classmethod
    def _options_are_known(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "policy" in info.data:
            make_options(info.data["policy"], options)
        if options.get("rates") is not None:
            wrong = mistake("the plan is made for `rate` of the query; leave it out", "rates")
            raise ValidationError.from_exception_data("options", [wrong])
        return options

    @check_field("arrival")
    @classmethod
    def _load_fits_the_arrival(cls, arrival: str, info: ValidationInfo) -> str:
        check_rate_fits(info.data.get("load"), arrival)
        return arrival

    @check_model(mode="after")
    def _budgets_fit(self) -> PipelineScenario:
        if self.budgets_ms is None:
            return self
        try:
            _ = self.plan
        except InvalidInput as error:
            place = ("budgets_ms",) if error.setting == "budgets_ms" else ("query", error.setting)
            wrong = mistake(str(error).removeprefix(f"{error.setting}: "), *place)
            raise ValidationError.from_exception_data("query", [wrong]) from None
        return self

    @check_model(mode="after")
    def _is_not_endless(self) -> PipelineScenario:
        if problem := self.too_many_requests():
            raise ValidationError.from_exception_data("query", [mistake(problem, "seconds")])
        return self

    def too_many_requests(self) -> str:
        """Return what is wrong if more requests would be simulated than anybody can wait for; empty if not.

        Those of all stages count. A trace does not: its file holds its queries.
        """
        if self._root.traced:
            return ""
        calls = sum(self.query.rates.values()) / self.query.rate  # requests of a query
        return endless(calls * self._queries)

    @property
    def _root(self) -> Session:
        """How queries come."""
        rate = self.query.rate if self.load is None else self.load
        return Session.model_construct(rate=rate, arrival=self.arrival)  # both are checked already

    @property
    def _queries(self) -> float:
        """How many are expected."""
        return self._root.mean_rate(self.interval.last) * self.interval.last

    @property
    def interval(self) -> Interval:
        """Which queries count: those after the warm-up."""
        end = self.warmup_seconds + self.seconds
        return Interval(self.warmup_seconds, end, end)

    @cached_property
    def plan(self) -> QueryPlan:
        """The split of the SLO."""
        if self.budgets_ms is None:
            return plan_query(self.query)
        return plan_within(self.query, {name: budget / 1e3 for name, budget in self.budgets_ms.items()})

    def cluster_spec(self) -> ClusterSpec:
        """Return the stages as sessions, each with the SLO that its deadlines count with."""
        ends = {
            "split": [one.budget for one in self.plan.stages],
            "carried": [one.begin + one.budget for one in self.plan.stages],
            "proactive": [self.query.slo] * len(self.plan.stages),
        }
        return self._spec(ends[self.deadlines])

    def _spec(self, slos: list[float]) -> ClusterSpec:
        sessions = [
            SessionSpec(name=one.name, slo=slo, latency=self._latency(one.name))
            for one, slo in zip(self.plan.stages, slos, strict=True)
        ]
        return ClusterSpec(sessions=sessions, kinds=[0] * self.accelerators)

    def _latency(self, stage: str) -> np.ndarray:
        """Return the latency of every batch within the query's SLO.   # (1, B+1) s."""
        latency = self.query.by_name[stage].latency(self.query.slo)
        return np.concatenate(([0.0], latency))[None, :]

    def make_policy(self) -> Any:
        """Return the policy's state at time 0; a plan, where the policy has one, is made for the budgets."""
        known, options = option_names(self.policy), dict(self.options)
        if "placement" in known and options.get("placement") is None:
            split = self._spec([one.budget for one in self.plan.stages])
            options["placement"] = make_placement(split, [one.rate for one in self.plan.stages])
        return build_policy(self.policy, self.cluster_spec(), make_options(self.policy, options))

    def make_requests(self) -> RequestStream:
        """Return the stream of queries."""
        expected = int(AMPLE * self._queries) + 1
        return RequestStream([self._root.process()], seed=self.seed, chunk=min(expected, CHUNK))

    def draw_network(
        self, generator: np.random.Generator, count: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return no delays: requests hop from stage to stage."""
        del generator, count
        return np.zeros(1), np.zeros(1), np.zeros(1)

    def stages(self) -> PipelineSpec:
        """Return what the engine needs of the query."""
        order = [one.name for one in self.plan.stages]
        # Behind a batch that has just begun, the next one waits as long as it executes itself: both have to
        # fit into the budget, however large a batch is planned.
        latency = {one.name: min(one.latency, one.budget / 2) for one in self.plan.stages}
        gathering = self._gathering(latency)
        stages = tuple(
            StageSpec(
                calls=tuple((order.index(call.stage), call.gamma) for call in self.query.by_name[name].next),
                execution=latency[name],
                gathering=gathering[name],
            )
            for name in order
        )
        carried = self.deadlines != "split"
        proactive = self.deadlines == "proactive"
        return PipelineSpec(stages, self.query.slo, self.hop_ms / 1e3, carried, proactive)

    def _gathering(self, latency: dict[str, float]) -> dict[str, float]:
        """Return how long, behind each stage, batches wait to gather: the quantile of the sum over a path, s.

        A batch waits between nothing and the execution before it. PARD takes the 10 % quantile of the sum: it
        serves the requests with the most time left first under overload. Those that are served from the head
        have hardly more time than is left here: with 10 %, a quarter of the work was in vain in an overloaded
        chain of three stages.
        """
        rng = np.random.default_rng(0)
        waits = {name: np.zeros(SAMPLES) for name in latency}  # s, of all stages behind
        for stage in reversed(self.plan.stages):
            called = [call.stage for call in self.query.by_name[stage.name].next]
            for name in called:
                own = waits[name] + rng.uniform(0.0, latency[name], SAMPLES)
                waits[stage.name] = np.maximum(waits[stage.name], own)
        return {name: float(np.quantile(some, self.gathering_quantile)) for name, some in waits.items()}
