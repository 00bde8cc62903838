"""A scenario: sessions on accelerators under a policy, as the file of ``tuner simulate`` describes it."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Discriminator, Field, PlainValidator, Tag, ValidationError, ValidationInfo
from pydantic import field_validator as check_field
from pydantic import model_validator as check_model
from pydantic_core import InitErrorDetails

from tuner.cluster.distribution import Distribution, parse_distribution
from tuner.cluster.options import make_options, mistake, option_names
from tuner.cluster.session import (
    FASTEST,
    SLOWEST,
    Count,
    NotNegative,
    Positive,
    Session,
    StrictPart,
)
from tuner.cluster.workload import CHUNK, Workload
from tuner.errors import InvalidInput
from tuner.scheduling.catalogue import POLICIES, build_policy
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec

__all__ = ["Accelerators", "Allowance", "Network", "NetworkDraws", "Scenario", "Session"]

ALLOWED = 0.99
"""A policy allows for the delay that this share of the draws stays below, unless the file says otherwise."""
MOST_SESSIONS = 20_000
"""Copies counted; each takes about 80 KB."""
MOST_ACCELERATORS = 1_000_000
LONGEST = 1e7
"""s; over longer times a time in seconds is not exact to a nanosecond."""
MOST_REQUESTS = 1e12
"""More than a processor simulates in a day."""
ANY = "default"
"""The kind of accelerators that are only counted."""


def _check_delay(value: Any) -> float | str:
    """Return a delay as it was written, once it is known to be one."""
    found = parse_distribution(value)
    return found.first if found.constant else str(value).strip()


Delay = Annotated[float | str, PlainValidator(_check_delay)]


class NetworkDraws(NamedTuple):
    """Drawn delays of the network, one of each for each batch; arrays of one if it is always the same."""

    control: np.ndarray  # (n,) or (1,) s from the scheduler to the accelerator
    data: np.ndarray  # (n,) or (1,) s per request of the batch
    response: np.ndarray  # (n,) or (1,) s from the end of the execution to the clients


class Allowance(StrictPart):
    """What the policy believes of the network, where that is not what a scenario does by itself."""

    control_ms: NotNegative | None = None
    data_ms_per_request: NotNegative | None = None
    response_ms: NotNegative | None = None


class Network(StrictPart):
    """The delays between scheduler, accelerators and clients: a number, or a distribution.

    ``lognormal:MEDIAN,SIGMA``, ``uniform:LOW,HIGH`` or ``exponential:MEAN``, drawn for each batch.
    """

    control_ms: Delay = 0.0
    """From the scheduler's decision to the accelerator."""
    data_ms_per_request: Delay = 0.0
    """To bring the input of one request of a batch there."""
    response_ms: Delay = 0.0
    """From the end of the execution to the client."""
    allowance: Allowance = Allowance()
    """What the policy believes; by default the constants, and the 99 % quantile of a distribution."""

    @cached_property
    def delays(self) -> tuple[Distribution, Distribution, Distribution]:
        """Control, data per request, and response."""
        control, data = parse_distribution(self.control_ms), parse_distribution(self.data_ms_per_request)
        return control, data, parse_distribution(self.response_ms)

    @property
    def constant(self) -> bool:
        """Whether nothing is random about it."""
        return all(delay.constant for delay in self.delays)

    def allowed(self) -> Delays:
        """Return what the policy allows for, s."""
        told = (self.allowance.control_ms, self.allowance.data_ms_per_request, self.allowance.response_ms)
        control, data, response = (
            (delay.quantile(ALLOWED) if value is None else value) / 1e3
            for value, delay in zip(told, self.delays, strict=True)
        )
        return Delays(control=control, data=data, response=response)

    def draw(self, generator: np.random.Generator, count: int) -> NetworkDraws:
        """Return independent draws for so many batches; one of what is constant."""
        return NetworkDraws(*(delay.draw(generator, count) / 1e3 for delay in self.delays))


class Accelerators(StrictPart):
    """Accelerators of one kind."""

    kind: str = Field(min_length=1)
    count: Count


def _form(value: Any) -> str:
    return "groups" if isinstance(value, list | tuple) else "number"


class Scenario(StrictPart):
    """Sessions on accelerators under a policy.

    >>> Scenario(policy="eager", accelerators=2, sessions=[
    ...     Session(name="a", alpha_ms=1, beta_ms=5, slo_ms=25, rate=100)]).total_rate
    100.0
    """

    policy: str
    """One of ``tuner.scheduling.catalogue.POLICIES``."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Of the policy; see its ``Options``."""
    accelerators: Annotated[
        Annotated[Count, Tag("number")] | Annotated[tuple[Accelerators, ...], Tag("groups")],
        Discriminator(_form),
    ]
    """How many, or a list of ``{kind, count}``."""
    rate: Annotated[float, Field(strict=True, ge=SLOWEST, le=FASTEST)] | None = None
    """Requests/s of all sessions together, shared out by popularity; then sessions have no rates."""
    popularity: str = "equal"
    """``equal``, or ``zipf:EXPONENT``: the k-th session of the file has a share of k**-EXPONENT."""
    sessions: tuple[Session, ...]
    network: Network = Network()
    frontends: Count = 1
    """Each request is received by one of them, at random."""
    noise: Annotated[float, Field(strict=True, ge=0, le=1)] = 0.0
    """Standard deviation of execution times, relative to the profile."""
    seconds: Annotated[Positive, Field(le=LONGEST)] = 10.0
    """How long is measured, after the warm-up."""
    warmup_seconds: Annotated[NotNegative, Field(le=LONGEST)] = 1.0
    """How long the load runs before; schedules and traces begin with it."""
    seed: Annotated[int, Field(strict=True, ge=0, lt=1 << 63)] = 0
    """Of everything random."""

    @check_field("policy")
    @classmethod
    def _policy_is_known(cls, name: str) -> str:
        if name not in POLICIES:
            raise ValueError(f"there is no {name!r}; use one of {', '.join(POLICIES)}")
        return name

    @check_field("accelerators", "sessions")
    @classmethod
    def _is_not_empty(cls, value: Any) -> Any:
        if value == ():
            raise ValueError("needs at least one")
        return value

    @check_field("accelerators")
    @classmethod
    def _accelerators_are_not_too_many(cls, value: Any) -> Any:
        count = value if isinstance(value, int) else sum(group.count for group in value)
        if count > MOST_ACCELERATORS:
            raise ValueError(f"can be {MOST_ACCELERATORS:,} at most, but are {count:,}")
        return value

    @check_field("options")
    @classmethod
    def _options_are_known(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "policy" in info.data:
            make_options(info.data["policy"], options)
        return options

    @check_field("popularity")
    @classmethod
    def _popularity_is_known(cls, text: str, info: ValidationInfo) -> str:
        _exponent(text)
        if text.strip() != "equal" and info.data.get("rate", 0) is None:
            raise ValueError("shares out the total `rate` of the scenario; give it, too")
        return text.strip()

    @check_field("sessions")
    @classmethod
    def _sessions_fit(cls, sessions: tuple[Session, ...], info: ValidationInfo) -> tuple[Session, ...]:
        wrong: list[InitErrorDetails] = []
        total, groups = info.data.get("rate"), info.data.get("accelerators")
        count = sum(session.copies for session in sessions)
        if count > MOST_SESSIONS:
            raise ValueError(f"can be {MOST_SESSIONS:,} at most, but are {count:,} with their copies")
        names = Counter(name for session in sessions for name in _names(session))
        for index, session in enumerate(sessions):
            doubles = [name for name in _names(session) if names[name] > 1]
            if doubles:
                wrong.append(mistake(f"{doubles[0]!r} is the name of two; rename one", index, "name"))
            if total is not None and session.rate is not None:
                problem = "the scenario's `rate` sets the rates of all sessions; give one or the other"
                wrong.append(mistake(problem, index, "rate"))
            if total is None and session.needs_rate and "rate" in info.data:
                problem = "give requests/s, here or as `rate` of the scenario for all sessions together"
                wrong.append(mistake(f"has no rate; {problem}", index))
            if groups is not None and session.profiles is not None:
                missing = [kind for kind in _kinds(groups) if kind not in session.profiles]
                if missing:
                    wrong.append(mistake(_missing(missing[0], groups), index, "profiles"))
        if wrong:
            raise ValidationError.from_exception_data("sessions", wrong)
        return sessions

    @check_model(mode="after")
    def _frontends_agree(self) -> Scenario:
        if self.options.get("frontends", self.frontends) != self.frontends:
            details = [mistake("is the scenario's `frontends`; give it there", "options", "frontends")]
            raise ValidationError.from_exception_data("scenario", details)
        return self

    @check_model(mode="after")
    def _is_not_endless(self) -> Scenario:
        if problem := self.too_many_requests():
            details = [mistake(problem, "seconds")]
            raise ValidationError.from_exception_data("scenario", details)
        return self

    @check_model(mode="after")
    def _policy_accepts_it(self, info: ValidationInfo) -> Scenario:
        """Of a file, also check what only the policy knows, so that the mistake is told with its line."""
        if info.context and "folder" in info.context:
            try:
                self.make_policy()
            except InvalidInput as error:
                details = [mistake(str(error), "options")]
                raise ValidationError.from_exception_data("scenario", details) from None
        return self

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of accelerators; the order numbers them."""
        return _kinds(self.accelerators)

    @cached_property
    def each_session(self) -> tuple[Session, ...]:
        """The sessions with copies written out, each with its rate."""
        named = [(session, name) for session in self.sessions for name in _names(session)]
        rates = [session.rate for session, _ in named]
        if self.rate is not None:
            weights = np.arange(1, len(named) + 1) ** -_exponent(self.popularity)
            rates = (self.rate / weights.sum() * weights).tolist()
        return tuple(
            session.model_copy(update={"name": name, "copies": 1, "rate": rate})
            for (session, name), rate in zip(named, rates, strict=True)
        )

    @property
    def total_rate(self) -> float:
        """Requests/s of all sessions, on average over the whole run."""
        if self.rate is not None:
            return self.rate
        return sum(session.copies * session.mean_rate(self.duration) for session in self.sessions)

    @property
    def duration(self) -> float:
        """Warm-up and measured part, s."""
        return self.warmup_seconds + self.seconds

    def too_many_requests(self) -> str:
        """Return what is wrong if more requests would be simulated than anybody can wait for; else nothing.

        Traces do not count: their files hold their requests.
        """
        told = (session for session in self.sessions if session.rate is not None)
        own = sum(session.copies * session.mean_rate(self.duration) for session in told)
        requests = (own if self.rate is None else self.rate) * self.duration
        if requests <= MOST_REQUESTS:
            return ""
        return f"would be {requests:.0e} requests; at most {MOST_REQUESTS:.0e} are simulated"

    def cluster_spec(self) -> ClusterSpec:
        """Return what the policy knows: sessions, accelerators, and the delays it allows for."""
        return self._cluster_spec

    @cached_property
    def _cluster_spec(self) -> ClusterSpec:
        tables = [session.table(self.kinds) for session in self.sessions]
        sessions = [
            SessionSpec(name=name, slo=session.slo, latency=table)
            for session, table in zip(self.sessions, tables, strict=True)
            for name in _names(session)
        ]
        groups = self.accelerators
        if isinstance(groups, int):
            groups = (Accelerators(kind=ANY, count=groups),)
        kinds = [self.kinds.index(group.kind) for group in groups for _ in range(group.count)]
        return ClusterSpec(sessions=sessions, kinds=kinds, delays=self.network.allowed())

    def make_policy(self) -> Any:
        """Return the policy's state at time 0.

        A policy that has options ``frontends`` and ``rates`` is told those of the scenario.

        Raises:
            InvalidInput: The options do not fit the cluster; a trace, whose rate is needed, cannot be read.
        """
        known, options = option_names(self.policy), dict(self.options)
        if "frontends" in known:
            options["frontends"] = self.frontends
        if "rates" in known and options.get("rates") is None:
            options["rates"] = [session.mean_rate(self.duration) for session in self.each_session]
        return build_policy(self.policy, self.cluster_spec(), make_options(self.policy, options))

    def make_workload(self) -> Workload:
        """Return the stream of arrivals, from time 0 on.

        Raises:
            InvalidInput: A trace cannot be read.
        """
        expected = int(min(1.05 * self.total_rate * self.duration, CHUNK))
        processes = [session.process() for session in self.each_session]
        return Workload(processes, seed=self.seed, frontends=self.frontends, chunk=expected)

    def draw_network(self, generator: np.random.Generator, count: int) -> NetworkDraws:
        """Return drawn delays for so many batches."""
        return self.network.draw(generator, count)

    def scaled(self, multiplier: float) -> Scenario:
        """Return the same at a multiple of all rates."""
        if self.rate is not None:
            return self.model_copy(update={"rate": self.rate * multiplier})
        return self.model_copy(update={"sessions": tuple(s.scaled(multiplier) for s in self.sessions)})


def _exponent(popularity: str) -> float:
    form, _, rest = popularity.strip().partition(":")
    if form == "equal" and not rest:
        return 0.0
    try:
        exponent = float(rest)
    except ValueError:
        exponent = -1.0
    if form != "zipf" or not 0 <= exponent <= 10:
        raise ValueError(f"{popularity!r} is not known; write equal, or zipf:0.9 (an exponent from 0 to 10)")
    return exponent


def _names(session: Session) -> list[str]:
    return [session.name] if session.copies == 1 else [f"{session.name}-{i}" for i in range(session.copies)]


def _kinds(accelerators: int | tuple[Accelerators, ...]) -> tuple[str, ...]:
    return (ANY,) if isinstance(accelerators, int) else tuple(dict.fromkeys(g.kind for g in accelerators))


def _missing(kind: str, accelerators: int | tuple[Accelerators, ...]) -> str:
    if isinstance(accelerators, int):
        return "write the accelerators as a list of {kind, count}, to say which has which profile"
    return f"has no profile for the accelerators of kind {kind!r}"
