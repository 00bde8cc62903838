"""A scenario: sessions on accelerators under a policy, and everything that a simulation of it needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError, ValidationInfo
from pydantic import model_validator as check_model
from pydantic_core import InitErrorDetails

from tuner.cluster.requests import CHUNK, AtOnce, RequestStream
from tuner.cluster.scenario.checks import instance_mistakes, names, unread_mistakes
from tuner.cluster.scenario.form import PAPER, Form, use_of
from tuner.cluster.scenario.hardware import Hardware
from tuner.cluster.scenario.network import NetworkDraws
from tuner.cluster.scenario.options import make_options, option_names
from tuner.cluster.scenario.penalty import penalty_note
from tuner.cluster.scenario.popularity import shared_out
from tuner.cluster.scenario.rental import Rental
from tuner.cluster.scenario.session import ARRIVALS, Session
from tuner.cluster.simulation import Interval
from tuner.errors import InvalidInput
from tuner.files.schema import mistake
from tuner.planning.pools.catalogue import CatalogueFile, InstanceType
from tuner.planning.pools.paper import paper_catalogue
from tuner.rounding import ROUNDING
from tuner.scheduling.catalogue import build_policy, distributes, policy_names
from tuner.scheduling.cluster import ClusterSpec, SessionSpec
from tuner.workload.sizes import SizeDistribution

__all__ = ["Scenario", "endless"]

MOST_REQUESTS = 1e12
"""Most requests of one simulation: more than a processor simulates in a day."""
MOST_AT_ONCE = 10_000_000
"""Most requests of the oracle, which needs all of them in memory; each takes 24 bytes."""
ORACLE = "oracle"
AMPLE = 1.05
"""Factor on the requests expected in a run, so that one chunk mostly holds all of them."""
INSTANT = 1e-12
"""s; the oracle's requests all arrive before then."""
NO_ACCELERATORS = (
    "has neither `accelerators` nor `instances`; write accelerators: 8, or "
    "instances: [{type: g4dn.xlarge, count: 2}], which `tuner plan instances` chooses"
)


class Scenario(Form):
    """Sessions on accelerators under a policy.

    >>> Scenario(policy="eager", accelerators=2, sessions=[
    ...     Session(name="a", alpha_ms=1, beta_ms=5, slo_ms=25, rate=100)]).total_rate
    100.0
    """

    @check_model(mode="after")
    def _instances_fit(self) -> Scenario:
        if self.instances is not None:
            _refuse(instance_mistakes(self.instances, self.types, self.sessions))
        if self.distributes and not (self.instances is None and self.accelerators is None):
            _refuse(self._unknown_sizes())
        return self

    @check_model(mode="after")
    def _an_answer_can_arrive_in_time(self) -> Scenario:
        response = self.network.allowed().response * 1e3
        least = min(self.sessions, key=lambda session: session.slo_ms)
        if response >= least.slo_ms:
            problem = f"takes {response:g} ms, not less than slo_ms {least.slo_ms:g} of {least.name}"
            _refuse([mistake(f"{problem}: no answer can be in time", "network", "response_ms")])
        return self

    @check_model(mode="after")
    def _frontends_agree(self) -> Scenario:
        if self.options.get("frontends", self.frontends) != self.frontends:
            _refuse([mistake("is the scenario's `frontends`; give it there", "options", "frontends")])
        return self

    @check_model(mode="after")
    def _is_not_endless(self) -> Scenario:
        if problem := self.too_many_requests():
            _refuse([mistake(problem, "seconds")])
        if self.at_once and self.requests is not None and self.requests > MOST_AT_ONCE:
            _refuse([mistake(f"the oracle can look at up to {MOST_AT_ONCE:,}", "requests")])
        return self

    @check_model(mode="after")
    def _file_is_complete(self, info: ValidationInfo) -> Scenario:
        """Check a file for what its command needs and reads, so that a mistake is reported with its line."""
        if use_of(info) not in ("simulate", "goodput"):
            return self
        unread = unread_mistakes(self.planner, self.model_fields_set, self.options, self.sessions)
        _refuse(self._missing() + unread)
        try:
            self.make_policy()
        except InvalidInput as error:
            _refuse([mistake(str(error), "options")])
        return self

    def _missing(self) -> list[InitErrorDetails]:
        """Return what a simulation needs and the scenario lacks."""
        wrong = []
        if self.policy is None:
            wrong.append(mistake(f"has no `policy`; write one of {', '.join(policy_names())}"))
        if self.accelerators is None and self.instances is None:
            wrong.append(mistake(NO_ACCELERATORS))
        if self.at_once and self.requests is None:
            wrong.append(mistake("the oracle needs all requests at once; write how many: requests: 20000"))
        if self.requests is not None and {"seconds", "warmup_seconds"} & self.model_fields_set:
            problem = "gives a time, but the scenario is measured over its `requests`; leave one of them out"
            name = "seconds" if "seconds" in self.model_fields_set else "warmup_seconds"
            wrong.append(mistake(problem, name))
        return wrong + [mistake(problem, name) for name, problem in self.unplannable().items()]

    def unplannable(self) -> dict[str, str]:
        """Return why the planner cannot plan, in words by field; empty if it can, or there is none."""
        if self.planner is None:
            return {}
        problem = "a `planner` needs `accelerators` and `seconds`; leave it out"
        given = {"instances": self.instances, "requests": self.requests}
        wrong = {name: problem for name, value in given.items() if value is not None}
        wrong |= {"planner": self._unlike_accelerators(), "memory_mib": self._too_little_memory()}
        return {name: problem for name, problem in wrong.items() if problem}

    def _unlike_accelerators(self) -> str:
        """Return why the planner cannot plan for the accelerators, in words; empty if it can."""
        if self.planner == "symphony" or self.accelerators is None or len(self.hardware.kinds) < 2:
            return ""
        kinds = ", ".join(self.hardware.kinds)
        return f"{self.planner} plans for equal accelerators, not for {kinds}; the policy nexus does so"

    def _too_little_memory(self) -> str:
        """Return why accelerators cannot load all models, as under `symphony`; empty if they can."""
        need = sum(session.copies * session.memory_mib for session in self.sessions)
        if self.planner != "symphony" or self.memory_mib is None or need <= self.memory_mib * (1 + ROUNDING):
            return ""
        return f"is {self.memory_mib:g}, but every accelerator loads all models under symphony: {need:g} MiB"

    def _unknown_sizes(self) -> list[InitErrorDetails]:
        """Return the models whose profiles do not hold all the sizes that come."""
        wrong = []
        for index, session in enumerate(self.sessions):
            try:
                self.hardware.offers(session, session.size_distribution())
            except InvalidInput as error:
                wrong.append(mistake(str(error), "sessions", index, "model"))
        return wrong

    @property
    def distributes(self) -> bool:
        """Whether the policy distributes requests by their size, and makes no batches."""
        return self.policy is not None and distributes(self.policy)

    @property
    def at_once(self) -> bool:
        """Whether all requests are there at time 0, as for the oracle, whose rate is a result."""
        return self.policy == ORACLE

    @property
    def steady(self) -> bool:
        """Whether every session has a constant rate without bursts."""
        return not any(isinstance(s.rate, tuple) or s.arrival not in ARRIVALS for s in self.sessions)

    @property
    def traced(self) -> bool:
        """Whether a session's requests come at the times of a file."""
        return any(session.traced for session in self.sessions)

    @cached_property
    def types(self) -> tuple[InstanceType, ...]:
        """The instance types of the catalogue; raises TunerError if its file cannot be used."""
        if not isinstance(self.catalogue, str):
            return self.catalogue
        if self.catalogue == PAPER:
            return paper_catalogue()
        from tuner.files.yaml_file import load_yaml

        return load_yaml(Path(self.catalogue), CatalogueFile).catalogue

    @property
    def rented(self) -> dict[str, int] | None:
        """Rented instances by type, as the file has them; None if it has none."""
        if self.instances is None:
            return None
        names = dict.fromkeys(one.type for one in self.instances)
        return {name: sum(one.count for one in self.instances if one.type == name) for name in names}

    @cached_property
    def rental(self) -> Rental | None:
        """The rented pool, in the catalogue's order; None if the cluster has accelerators, or nothing yet."""
        if self.rented is None:
            return None
        counts = {kind.name: self.rented.get(kind.name, 0) for kind in self.types}
        types = tuple(kind for kind in self.types if counts[kind.name])
        return Rental(types=types, counts=tuple(counts[kind.name] for kind in types))

    @cached_property
    def hardware(self) -> Hardware:
        """The accelerators, or the rented instances.

        Raises:
            InvalidInput: There are none.
        """
        if self.rental is not None:
            return Hardware.rented(self.rental)
        if self.accelerators is None:
            raise InvalidInput("scenario", NO_ACCELERATORS)
        return Hardware.of(self.accelerators)

    @cached_property
    def each_session(self) -> tuple[Session, ...]:
        """The sessions with copies written out, each with its rate."""
        named = [(session, name) for session in self.sessions for name in names(session)]
        rates: Sequence[Any] = [session.rate for session, _ in named]
        if self.rate is not None:
            rates = shared_out(self.rate, self.popularity, len(named))
        return tuple(
            session.model_copy(update={"name": name, "copies": 1, "rate": rate})
            for (session, name), rate in zip(named, rates, strict=True)
        )

    @property
    def total_rate(self) -> float:
        """Requests/s of all sessions, on average over the whole run."""
        if self.rate is not None and not self.traced:
            return self.rate
        sessions = self.sessions if self.rate is None else self.each_session
        return sum(session.copies * session.mean_rate(self.duration) for session in sessions)

    @cached_property
    def interval(self) -> Interval:
        """Which requests count: those after the warm-up, or all of a given number."""
        if self.at_once:
            return Interval(0.0, math.inf, INSTANT)
        if self.requests is None:
            end = self.warmup_seconds + self.seconds
            return Interval(self.warmup_seconds, end, end)
        return Interval(0.0, self._all_have_come, self._all_have_come)

    @cached_property
    def _all_have_come(self) -> float:
        """Just after the last of a given number of requests has come by their rates, s.

        Raises:
            InvalidInput: All of them come at once, so that they have no rate; a trace cannot be read.
        """
        last = self._make_stream().last_arrival()
        if last <= 0:
            problem = "the requests all come at 0 s, so that they have no rate"
            raise InvalidInput("requests", problem, "more are needed, at other times")
        return float(np.nextafter(last, np.inf))

    @property
    def duration(self) -> float:
        """Length of the whole run, s; infinite if it has no end, no schedule and no trace.

        Under the oracle it is the time in which its requests would come by their rates.
        """
        if self.requests is None:
            return self.warmup_seconds + self.seconds
        scheduled = any(isinstance(session.rate, tuple) for session in self.sessions)
        return self._all_have_come if scheduled or self.traced else math.inf

    def too_many_requests(self) -> str:
        """Return what is wrong if more requests would be simulated than anybody can wait for; empty if not.

        Traces do not count: their files hold their requests.
        """
        if self.requests is not None:
            return ""
        plain = (s for s in self.sessions if s.rate is not None and not s.traced)
        own = sum(s.copies * s.mean_rate(self.duration) for s in plain)
        return endless((own if self.rate is None else self.rate) * self.duration)

    @cached_property
    def sizes(self) -> tuple[SizeDistribution | None, ...]:
        """How large the requests of each session are, copies written out; None for one item each."""
        drawn = [session.size_distribution() for session in self.sessions]
        return tuple(
            own for session, own in zip(self.sessions, drawn, strict=True) for _ in range(session.copies)
        )

    @property
    def size_probabilities(self) -> tuple[np.ndarray, ...]:
        """The probability of each size up to the largest, by session, copies written out.   # (S+1,)."""
        one = np.array([0.0, 1.0])
        return tuple(one if own is None else own.probability[: own.largest + 1] for own in self.sizes)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was repaired in the catalogue, and what is odd about the pool."""
        notes = self._penalty_notes()
        if self.rental is None:
            return tuple(notes)
        for session in self.sessions:
            sizes = session.size_distribution()
            offers = self.hardware.offers(session, sizes)
            notes += offers.notes if offers is not None else ()
            longest = self.hardware.request_latency(session, sizes)[:, -1]  # (K,) s
            if sizes is not None and 1e3 * longest.min() > session.slo_ms:
                notes.append(
                    f"no instance of the pool meets slo_ms {session.slo_ms:g} of {session.name} at its "
                    f"largest size, {sizes.largest} items: the fastest needs {1e3 * longest.min():.4g} ms"
                )
        if self.at_once:
            notes.append(
                "the oracle knows all requests and lets them come when it wants; rates do not matter"
            )
        cost = self.rental.cost
        if self.budget is not None and cost > self.budget * (1 + 1e-9):
            notes.append(f"the pool costs {cost:g} $/h, more than the budget of {self.budget:g}")
        return tuple(notes)

    def _penalty_notes(self) -> list[str]:
        """Say where the policy's penalty does not keep requests from being late."""
        notes = []
        for session in self.sessions if self.policy == "kairos" else ():
            sizes = session.size_distribution()
            longest = self.hardware.request_latency(session, sizes)[:, -1]  # (K,) s
            types = dict(zip(self.hardware.kinds, longest.tolist(), strict=True))
            items = 1 if sizes is None else sizes.largest
            notes.append(penalty_note(session.name, types, session.slo, items, self.options))
        return [note for note in notes if note is not None]

    def cluster_spec(self) -> ClusterSpec:
        """Return what the policy knows: sessions, accelerators, and the delays it assumes.

        Raises:
            InvalidInput: There are no accelerators.
        """
        return self._cluster_spec

    @cached_property
    def _cluster_spec(self) -> ClusterSpec:
        sessions = []
        for session in self.sessions:
            if self.distributes:
                latency = self.hardware.request_latency(session, session.size_distribution())
            else:
                latency = self.hardware.batch_latency(session)
            sessions += [
                SessionSpec(name=name, slo=session.slo, latency=latency, quantile=session.quantile)
                for name in names(session)
            ]
        delays = self.network.allowed()
        return ClusterSpec(sessions=sessions, kinds=self.hardware.kind_of_each, delays=delays)

    def make_policy(self) -> Any:
        """Return the policy's state at time 0.

        A policy with options ``frontends`` and ``rates`` gets those of the scenario.

        Raises:
            InvalidInput: There is no policy or no accelerator; the options do not fit the cluster; a trace,
                whose rate is needed, cannot be read.
        """
        if self.policy is None:
            raise InvalidInput("policy", "is missing", f"use one of {', '.join(policy_names())}")
        known, options = option_names(self.policy), dict(self.options)
        if "frontends" in known:
            options["frontends"] = self.frontends
        if "rates" in known and options.get("rates") is None:
            options["rates"] = [session.mean_rate(self.duration) for session in self.each_session]
        return build_policy(self.policy, self.cluster_spec(), make_options(self.policy, options))

    def make_requests(self) -> RequestStream | AtOnce:
        """Return the stream of requests, from time 0 on; all of them at once for the oracle.

        Raises:
            InvalidInput: A trace cannot be read.
        """
        if self.at_once:
            if self.requests is None:
                raise InvalidInput("requests", "are missing", "the oracle needs all requests at once")
            shares = np.array([session.mean_rate(self.duration) for session in self.each_session])
            return AtOnce(shares, self.sizes, count=self.requests, seed=self.seed)
        return self._make_stream()

    def _make_stream(self) -> RequestStream:
        if self.requests is None:
            expected = int(min(AMPLE * self.total_rate * self.duration, CHUNK))
        else:
            expected = min(self.requests + 1, CHUNK)
        return RequestStream(
            [session.process() for session in self.each_session],
            seed=self.seed,
            frontends=self.frontends,
            chunk=expected,
            sizes=self.sizes,
            count=self.requests,
        )

    def draw_network(self, generator: np.random.Generator, count: int) -> NetworkDraws:
        """Return the network's delays for ``count`` batches."""
        return self.network.draw(generator, count)

    def scaled(self, multiplier: float) -> Scenario:
        """Return the same scenario at a multiple of all rates.

        With a trace, which is played faster or slower, all times are shorter or longer, so that the same part
        of it counts.
        """
        changed: dict[str, Any] = {}
        speed = multiplier if self.traced else 1.0
        if self.traced:
            changed = {"seconds": self.seconds / speed, "warmup_seconds": self.warmup_seconds / speed}
        if self.rate is not None:
            changed["rate"] = self.rate * multiplier
        else:
            changed["sessions"] = tuple(one.scaled(multiplier, speed=speed) for one in self.sessions)
        return self.model_copy(update=changed)


def endless(requests: float) -> str:
    """Return what is wrong with so many requests in one simulation; empty if nothing is."""
    if requests <= MOST_REQUESTS:
        return ""
    return f"would be {requests:.0e} requests; at most {MOST_REQUESTS:.0e} are simulated"


def _refuse(wrong: list[InitErrorDetails]) -> None:
    if wrong:
        raise ValidationError.from_exception_data("scenario", wrong)
