"""A mixed cluster that can be simulated: the scenario's file with a pool, checked to the last field."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

import numpy as np
from pydantic import ValidationError, ValidationInfo
from pydantic import field_validator as check_field
from pydantic import model_validator as check_model
from pydantic_core import InitErrorDetails

from tuner.cluster.mixed.workload import AtOnce, QueryWorkload
from tuner.cluster.options import make_options, mistake
from tuner.cluster.workload import ArrivalProcess
from tuner.errors import InvalidInput
from tuner.planning.pools.catalogue import InstanceType, Offers, Some, make_offers
from tuner.planning.pools.scenario import MixedScenario, QuerySession, Rented
from tuner.planning.pools.sizes import SizeDistribution
from tuner.scheduling.catalogue import build_policy
from tuner.scheduling.cluster import ClusterSpec, SessionSpec
from tuner.workload.load import RateSchedule

__all__ = ["DrivenCluster", "MixedCluster"]

MOST_AT_ONCE = 10_000_000
"""Queries that the oracle can look at; each takes 24 bytes."""


class MixedCluster(MixedScenario):
    """Sessions on a pool of instances, under a distribution policy.

    >>> cluster = MixedCluster(
    ...     instances=[Rented(type="g4dn.xlarge", count=1)],
    ...     sessions=[QuerySession(name="a", model="rm2", qos_ms=350, rate=10)])
    >>> cluster.cost
    0.526
    """

    instances: Annotated[tuple[Rented, ...], Some]
    """The pool."""

    @check_model(mode="before")
    @classmethod
    def _has_a_pool(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("instances") is None:
            raise ValueError(
                "has no `instances`; write instances: [{type: g4dn.xlarge, count: 2}], or let "
                "`tuner plan instances` choose them"
            )
        return value

    @check_field("options")
    @classmethod
    def _options_are_known(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "policy" in info.data:
            make_options(info.data["policy"], options)
        return options

    @check_model(mode="after")
    def _fits(self) -> MixedCluster:
        wrong = self._unknown_types()
        for index, session in enumerate([] if wrong else self.sessions):
            try:
                make_offers(self._rented, session.model, session.distribution())
            except InvalidInput as error:
                wrong.append(mistake(str(error), "sessions", index, "model"))
        if not wrong and self.policy == "oracle" and self.queries > MOST_AT_ONCE:
            wrong.append(mistake(f"the oracle can look at up to {MOST_AT_ONCE:,}", "queries"))
        if wrong:
            raise ValidationError.from_exception_data("cluster", wrong)
        return self

    def _unknown_types(self) -> list[InitErrorDetails]:
        offered = {kind.name: kind for kind in self.types}
        wrong = []
        for index, rented in enumerate(self.instances):
            kind = offered.get(rented.type)
            if kind is None:
                problem = f"the catalogue has no {rented.type!r}; use one of {', '.join(offered)}"
                wrong.append(mistake(problem, "instances", index, "type"))
                continue
            count = sum(one.count for one in self.instances if one.type == rented.type)
            if count > kind.max_count:
                problem = f"the catalogue has {kind.max_count} of {kind.name}, but the pool {count}"
                wrong.append(mistake(problem, "instances", index, "count"))
            for session in self.sessions:
                if rented.count and session.model not in kind.profile:
                    problem = f"{kind.name} has no profile of {session.model}; leave it out of the pool"
                    wrong.append(mistake(problem, "instances", index, "type"))
        if not any(rented.count for rented in self.instances):
            wrong.append(mistake("the pool is empty; rent at least one instance", "instances"))
        return wrong

    @cached_property
    def pool(self) -> dict[str, int]:
        """Instances by type, in the catalogue's order; types of which there are none are left out."""
        counts = {kind.name: 0 for kind in self.types}
        for rented in self.instances:
            counts[rented.type] += rented.count
        return {name: count for name, count in counts.items() if count}

    @property
    def cost(self) -> float:
        """Of the pool, $/h."""
        return sum(kind.price * self.pool[kind.name] for kind in self._rented)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the catalogue's figures, and what is odd about the pool."""
        notes = [note for offers in self.offers for note in offers.notes]
        for session, sizes, offers in zip(self.sessions, self.sizes, self.offers, strict=True):
            latency = offers.latency[:, sizes.largest] * 1e3  # (K,) ms
            if latency.min() > session.qos_ms:
                notes.append(
                    f"no instance of the pool keeps qos_ms {session.qos_ms:g} of {session.name} at its "
                    f"largest size, {sizes.largest} items: the fastest needs {latency.min():.4g} ms"
                )
        if self.policy == "oracle":
            notes.append("the oracle knows all queries and lets them come when it wants; rates do not matter")
        if self.budget is not None and self.cost > self.budget * (1 + 1e-9):
            notes.append(f"the pool costs {self.cost:g} $/h, more than the budget of {self.budget:g}")
        return tuple(notes)

    @cached_property
    def sizes(self) -> tuple[SizeDistribution, ...]:
        """How large the queries of each session are."""
        return tuple(session.distribution() for session in self.sessions)

    @cached_property
    def offers(self) -> tuple[Offers, ...]:
        """What the pool's types are for each session."""
        pairs = zip(self.sessions, self.sizes, strict=True)
        return tuple(make_offers(self._rented, session.model, sizes) for session, sizes in pairs)

    @cached_property
    def rates(self) -> np.ndarray:
        """Queries/s of each session; those that are not given are 1.   # (M,)."""
        return np.array([session.rate or 1.0 for session in self.sessions])

    @property
    def warmup_seconds(self) -> float:
        """All queries count: learning the execution times is part of what is measured."""
        return 0.0

    @cached_property
    def seconds(self) -> float:
        """Until just after the last query has come."""
        return float(np.nextafter(self._make_stream().last_arrival(), np.inf))

    def cluster_spec(self) -> ClusterSpec:
        """Return what the policy knows: sessions and instances."""
        sessions = []
        for session, sizes, offers in zip(self.sessions, self.sizes, self.offers, strict=True):
            latency = offers.latency[:, : sizes.largest + 1].copy()
            latency[:, 0] = 0.0
            sessions.append(SessionSpec(name=session.name, slo=session.qos, latency=latency))
        kinds = [kind for kind, count in enumerate(self.pool.values()) for _ in range(count)]
        return ClusterSpec(sessions=sessions, kinds=kinds)

    def make_policy(self) -> Any:
        """Return the policy's state at time 0.

        Raises:
            InvalidInput: The options do not fit the cluster.
        """
        return build_policy(self.policy, self.cluster_spec(), make_options(self.policy, self.options))

    def make_workload(self) -> QueryWorkload | AtOnce:
        """Return the stream of queries; of the oracle, all at once."""
        if self.policy == "oracle":
            return AtOnce(self.rates, self.sizes, count=self.queries, seed=self.seed)
        return self._make_stream()

    def draw_network(
        self,
        generator: np.random.Generator,  # noqa: ARG002 - there is no network
        count: int,  # noqa: ARG002
        /,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return no delays."""
        return np.zeros(1), np.zeros(1), np.zeros(1)

    def scaled(self, multiplier: float) -> MixedCluster:
        """Return the same at a multiple of all rates."""
        sessions = tuple(
            session.model_copy(update={"rate": float(rate * multiplier)})
            for session, rate in zip(self.sessions, self.rates, strict=True)
        )
        return self._copied({"sessions": sessions}, ("rates", "seconds"))

    def changed(self, **fields: Any) -> MixedCluster:
        """Return the same with other fields, which are not checked."""
        return self._copied(fields, ("rates", "seconds", "sizes", "pool", "types", "offers", "_rented"))

    def _copied(self, fields: dict[str, Any], stale: tuple[str, ...]) -> MixedCluster:
        """Return a copy without what was worked out from the fields that are other now."""
        copy = self.model_copy(update=fields)
        for name in stale:
            copy.__dict__.pop(name, None)
        return copy

    @cached_property
    def _rented(self) -> tuple[InstanceType, ...]:
        return tuple(kind for kind in self.types if kind.name in self.pool)

    def _make_stream(self) -> QueryWorkload:
        processes = [
            ArrivalProcess(
                schedule=RateSchedule.constant(rate), whole_ms=session.arrival == "integer_poisson"
            )
            for session, rate in zip(self.sessions, self.rates.tolist(), strict=True)
        ]
        return QueryWorkload(processes, self.sizes, count=self.queries, seed=self.seed)


class DrivenCluster(MixedCluster):
    """A mixed cluster whose sessions have rates, as a simulation at one load needs them."""

    @check_field("sessions")
    @classmethod
    def _rates_are_given(cls, sessions: tuple[QuerySession, ...]) -> tuple[QuerySession, ...]:
        wrong = [
            mistake("has no rate; give queries/s", index)
            for index, session in enumerate(sessions)
            if session.rate is None
        ]
        if wrong:
            raise ValidationError.from_exception_data("sessions", wrong)
        return sessions
