"""The configuration file of the dispatcher: where it listens, how it schedules, and what it serves.

It is one YAML file, checked before anything listens or is connected; an error names file, line and field
(:func:`tuner.files.yaml_file.load_yaml`). ``docs/dispatch.md`` has the table of fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, ValidationError, ValidationInfo
from pydantic import field_validator as check_field
from pydantic import model_validator as check_model

from tuner.adapters.tfserving.target import TFServingTarget
from tuner.adapters.triton.target import TritonTarget
from tuner.cluster.scenario.options import check_policy, make_options
from tuner.dispatch.backends.catalogue import form_of, parse_backend
from tuner.dispatch.front.config import GrpcServer
from tuner.dispatch.pool.rules import Rules
from tuner.errors import InvalidInput
from tuner.files.schema import NotNegative, Positive, Some, StrictPart, address_like, file_beside, mistake
from tuner.scheduling.catalogue import policy_names
from tuner.scheduling.cluster import Delays
from tuner.scheduling.presets import PRESETS, written_out

__all__ = ["DispatchConfig", "ListenSection", "SessionConfig", "TracingSection"]

OFFLINE = ("oracle", "nexus")
"""Policies that need to know all requests, or their rates, beforehand."""
DEFAULTS: dict[str, dict[str, Any]] = {"symphony": {"deferral": 0.1}}
"""Options that are not the policy's own defaults. A batch that waits as long as it can is late if the machine
hesitates for a few milliseconds, which real ones do, or if more requests than expected come at once:
``tuner experiment run dispatch-deferral`` shows what each deferral is worth."""
LONGEST_SLO = 600_000
"""ms"""


Address = Annotated[tuple[str, int], PlainValidator(address_like(9100))]


class ListenSection(StrictPart):
    """Where the dispatcher listens; port 0 takes any free one."""

    grpc: Address | None = None
    """For KServe's and TensorFlow Serving's clients over gRPC."""
    grpc_server: GrpcServer = "grpcio"
    """What speaks it: ``native``, an extra, costs less, but has no TLS and trusts its clients."""
    http: Address | None = None
    """For KServe's clients over HTTP."""
    control: Address | None = None
    """For operators: metrics, health and knobs."""
    certificate: Path | None = None
    """The server's certificate, for TLS; relative to the file."""
    key: Path | None = None
    """Its key."""
    client_ca: Path | None = None
    """Whose certificates clients must have; any client may connect without it."""
    token_file: Path | None = None
    """File of the token that every client must send."""
    control_token_file: Path | None = None
    """File of the token that changes on the control port need; ``token_file`` if not given."""

    @check_field("certificate", "key", "client_ca", "token_file", "control_token_file")
    @classmethod
    def _beside_the_file(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if path is None or not info.context:
            return path
        return file_beside(path, info)


class ProfileSection(StrictPart):
    """What is assumed of a model until it is known: ``l(b) = alpha b + beta``."""

    alpha_ms: NotNegative
    beta_ms: Positive


class NetworkSection(StrictPart):
    """The delays that the scheduler assumes, in place of those that are measured."""

    control_ms: NotNegative
    data_ms_per_request: NotNegative = 0.0
    response_ms: NotNegative


class TracingSection(StrictPart):
    """Where the traces of requests go, for OpenTelemetry; the extra ``tracing`` is needed."""

    endpoint: str = Field(pattern=r"^https?://[^\s/?#@]+$", max_length=300)
    """A collector that speaks OTLP over gRPC, as ``http://127.0.0.1:4317``."""
    ratio: Annotated[Positive, Field(le=1)] = 1.0
    """Share of the traces that are recorded; of those that a caller began, the caller decides."""


class SessionConfig(StrictPart):
    """A model with an SLO, and where it is served."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    """What clients call it."""
    slo_ms: Annotated[Positive, Field(le=LONGEST_SLO)]
    """Within which its requests are answered."""
    backends: Annotated[tuple[str, ...], Some]
    """Targets, such as ``triton://127.0.0.1:8001/mlp``."""
    max_batch: Annotated[int, Field(strict=True, ge=0, le=1024)] | None = None
    """Largest batch; the server's own limit if not given. 0: its tensors have no items, and each request goes
    alone, whatever its shapes."""
    queue: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 1000
    """Items that may wait; further requests are refused."""
    profile: ProfileSection | None = None
    """What is assumed until it is learned."""

    @check_field("backends")
    @classmethod
    def _can_be_used(cls, backends: tuple[str, ...]) -> tuple[str, ...]:
        seen = set()
        for text in backends:
            try:
                target = parse_backend(text)
            except InvalidInput as error:
                raise ValueError(str(error).removeprefix("TARGET: ")) from None
            if target.address in seen:
                raise ValueError(
                    f"{target.address} is given twice; `instances` says how many batches it takes"
                )
            seen.add(target.address)
        return backends

    @property
    def servers(self) -> Mapping[str, TritonTarget | TFServingTarget]:
        """The targets of its backends, by the address of their server as ``host:port``."""
        return {target.address: target for target in map(parse_backend, self.backends)}


class DispatchConfig(StrictPart):
    """The whole file."""

    listen: ListenSection
    policy: str = "symphony"
    """One of ``tuner.scheduling.catalogue.policy_names()``, or of ``tuner.scheduling.presets.PRESETS``."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Of the policy; see its options class."""
    mode: Literal["proxy", "grants"] = "proxy"
    """``proxy``: requests pass through the dispatcher; ``grants``: clients send them when they may."""
    instances: Annotated[int, Field(strict=True, ge=1, le=64)] = 1
    """Batches that each backend executes at a time."""
    network: NetworkSection | None = None
    """Measured if not given."""
    tracing: TracingSection | None = None
    """Requests are not traced if not given."""
    quantile: Annotated[float, Field(strict=True, ge=0.5, lt=1)] = 0.95
    """Share of the batches that should not take longer than the learned profiles say."""
    sessions: Annotated[tuple[SessionConfig, ...], Some]

    @check_model(mode="before")
    @classmethod
    def _preset_is_written_out(cls, fields: Any) -> Any:
        return written_out(fields)

    @check_field("policy")
    @classmethod
    def _policy_is_known(cls, name: str) -> str:
        usable = [one for one in (*policy_names(), *PRESETS) if one not in OFFLINE]
        if name in OFFLINE:
            raise ValueError(f"{name} knows its requests beforehand; use one of {', '.join(usable)}")
        check_policy(name, usable)
        return name

    @check_field("options")
    @classmethod
    def _options_are_known(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "policy" in info.data:
            make_options(info.data["policy"], options)
        # A session has several streams, and each pool some of the sessions: none would find its own. Nor are
        # batches padded to sizes that are allowed.
        wrong = [
            mistake("no list here: the dispatcher has one value for all sessions, and pads no batches", name)
            for name, value in options.items()
            if isinstance(value, (list, tuple))
            and not (name == "preferred" and all(isinstance(one, int) for one in value))
        ]
        if wrong:
            raise ValidationError.from_exception_data("options", wrong)
        return options

    @check_field("mode")
    @classmethod
    def _frontends_can_ask(cls, mode: str, info: ValidationInfo) -> str:
        if mode == "grants" and "listen" in info.data and info.data["listen"].grpc is None:
            raise ValueError("frontends ask for grants over gRPC; give listen.grpc")
        return mode

    @check_field("listen")
    @classmethod
    def _somebody_can_ask(cls, listen: ListenSection) -> ListenSection:
        if listen.grpc is None and listen.http is None:
            raise ValueError("nothing listens for clients; give grpc, http or both")
        if (listen.certificate is None) != (listen.key is None):
            raise ValueError("certificate and key belong together; give both files")
        if listen.grpc_server == "native" and listen.certificate is not None:
            raise ValueError("grpc_server: native has no TLS; take grpcio, or leave certificate and key out")
        if listen.client_ca is not None and listen.certificate is None:
            raise ValueError("client_ca has no effect without a certificate; give one with its key")
        return listen

    @check_field("sessions")
    @classmethod
    def _sessions_fit(
        cls, sessions: tuple[SessionConfig, ...], info: ValidationInfo
    ) -> tuple[SessionConfig, ...]:
        wrong = []
        names: set[str] = set()
        for index, session in enumerate(sessions):
            if info.data.get("mode") == "grants" and any(map(_http_port, session.servers.values())):
                problem = "http= is for batches, and in mode: grants clients send requests; leave it out"
                wrong.append(mistake(problem, index, "backends"))
            if session.name in names:
                wrong.append(mistake(f"{session.name!r} is the name of two; rename one", index, "name"))
            names.add(session.name)
            for other in sessions[:index]:
                if problem := _clash(session, other):
                    wrong.append(mistake(problem, index, "backends"))
                    break
        if wrong:
            raise ValidationError.from_exception_data("sessions", wrong)
        return sessions

    def rules(self) -> Rules:
        """Return how pools schedule."""
        delays = None
        if self.network is not None:
            network = self.network
            delays = Delays(
                control=network.control_ms / 1e3,
                data=network.data_ms_per_request / 1e3,
                response=network.response_ms / 1e3,
            )
        # Also those of policies that a knob may choose later.
        given = {**DEFAULTS, self.policy: {**DEFAULTS.get(self.policy, {}), **self.options}}
        return Rules(
            policy=self.policy,
            options={name: make_options(name, options) for name, options in given.items()},
            delays=delays,
            grants=self.mode == "grants",
        )


def _clash(session: SessionConfig, other: SessionConfig) -> str:
    """Return why two sessions cannot use the servers that they have in common; empty if they can."""
    servers, others = session.servers, other.servers
    shared = sorted(servers.keys() & others.keys())
    if shared and servers.keys() != others.keys():
        return (
            f"shares {shared[0]} with {other.name}, but not all its servers; sessions on a common server "
            "must be on the same servers, so that one scheduler knows all that happens there"
        )
    for address in shared:
        one, another = servers[address], others[address]
        if _way(one) != _way(another):
            return (
                f"shares {address} with {other.name}, but by another scheme, TLS or token, or another HTTP "
                "port; there is one connection to each server"
            )
        if one.model == another.model and form_of(one) != form_of(another):
            return (
                f"asks {address} for another version, label or signature of {one.model} than {other.name}; "
                "give them servers of their own"
            )
    return ""


def _way(target: TritonTarget | TFServingTarget) -> tuple[object, ...]:
    """Return how batches reach the server of a target."""
    return type(target), _http_port(target), replace(target.security, metrics=False)


def _http_port(target: TritonTarget | TFServingTarget) -> int | None:
    """Return where the server of a target takes batches over HTTP, None for gRPC."""
    return target.http_port if isinstance(target, TritonTarget) else None
