"""The form of a scenario's file: its fields, and what each of them must be.

One form serves three commands: ``tuner simulate`` and ``tuner goodput`` run a scenario, under a batching or a
distribution policy; ``tuner plan instances`` uses ``catalogue``, ``sessions`` and ``budget``, and chooses the
``instances``.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Discriminator, Field, Tag, ValidationError, ValidationInfo
from pydantic import field_validator as check_field
from pydantic import model_validator as check_model

from tuner.cluster.scenario.checks import name_mistakes, profile_mistakes, rate_mistakes, size_mistakes
from tuner.cluster.scenario.hardware import Accelerators, Hardware
from tuner.cluster.scenario.network import Network
from tuner.cluster.scenario.options import check_policy, make_options
from tuner.cluster.scenario.popularity import zipf_exponent
from tuner.cluster.scenario.rental import Rented
from tuner.cluster.scenario.session import FASTEST, SLOWEST, Count, Session
from tuner.files.schema import NotNegative, Positive, Some, StrictPart, file_beside, named_once
from tuner.planning.pools.catalogue import InstanceType
from tuner.scheduling.catalogue import policy_names
from tuner.scheduling.presets import PRESETS, written_out

__all__ = ["PAPER", "PLANNERS", "SHORTEST", "Form", "use_of"]

MOST_SESSIONS = 20_000
"""Copies counted; each takes about 80 KB."""
MOST_ACCELERATORS = 1_000_000
MOST_BUDGET = 1e9
"""$/h; more is taken for a mistake."""
SHORTEST = 1e-6
"""s; of much less nothing is left beside the time of the warm-up, and epochs would never come to an end."""
LONGEST = 1e7
"""s; over longer times a time in seconds is not exact to a nanosecond."""
PLANNERS = {"nexus": "nexus", "oblivious": "nexus", "symphony": "symphony"}
"""Who plans each epoch, and the policy within it."""
PAPER = "paper"
"""The catalogue of the Kairos paper."""


def _form(value: Any) -> str:
    return "groups" if isinstance(value, list | tuple) else "number"


def _catalogue_form(value: Any) -> str:
    return "name" if isinstance(value, str) else "types"


class Form(StrictPart):
    """The fields of a scenario's file, each checked by itself and against those before it."""

    RENAMED: ClassVar = {"queries": "requests"}

    planner: str | None = None
    """Instead of a policy: who plans each epoch, one of ``PLANNERS``; ``accelerators`` are then the most."""
    epoch_s: Annotated[float, Field(strict=True, ge=SHORTEST, le=LONGEST)] = 30.0
    """Length of an epoch, of which the planner makes the next plan."""
    load_s: Annotated[NotNegative, Field(le=1e5)] = 0.5
    """How long an accelerator loads a model, and executes nothing."""
    margin: Annotated[float, Field(strict=True, ge=1, le=100)] = 1.15
    """What a planner of batches plans for, relative to the rates that came."""
    memory_mib: Positive | None = None
    """Of each accelerator, for the planner; None for no limit."""
    policy: str | None = None
    """One of ``tuner.scheduling.catalogue.policy_names()`` or ``presets.PRESETS``; a plan needs none."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Of the policy; see its options class."""
    accelerators: (
        Annotated[
            Annotated[Count, Tag("number")] | Annotated[tuple[Accelerators, ...], Tag("groups")],
            Discriminator(_form),
        ]
        | None
    ) = None
    """How many, or a list of ``{kind, count}``."""
    catalogue: Annotated[
        Annotated[str, Tag("name")] | Annotated[tuple[InstanceType, ...], Some, Tag("types")],
        Discriminator(_catalogue_form),
    ] = PAPER
    """The instance types that can be rented: ``paper``, the name of a file with a ``catalogue:`` list, or the
    list itself."""
    instances: tuple[Rented, ...] | None = None
    """Instead of accelerators: instances of the catalogue's types, a list of ``{type, count}``."""
    budget: Annotated[Positive, Field(le=MOST_BUDGET)] | None = None
    """$/h; a plan needs it."""
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
    seconds: Annotated[float, Field(strict=True, ge=SHORTEST, le=LONGEST)] = 10.0
    """How long is measured, after the warm-up."""
    warmup_seconds: Annotated[NotNegative, Field(le=LONGEST)] = 1.0
    """How long the load runs before; schedules and traces begin with it."""
    requests: Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)] | None = None
    """Instead of a time: how many requests are simulated, of all sessions together; all of them count."""
    seed: Annotated[int, Field(strict=True, ge=0, lt=1 << 63)] = 0
    """Of everything random."""

    @check_model(mode="before")
    @classmethod
    def _preset_is_written_out(cls, fields: Any) -> Any:
        return written_out(fields)

    @check_model(mode="before")
    @classmethod
    def _planner_has_a_policy(cls, value: Any) -> Any:
        """Set the policy that a planner plans for; whoever copies a scenario has it already."""
        if not (isinstance(value, dict) and isinstance(value.get("planner"), str)):
            return value
        own = PLANNERS.get(value["planner"])
        if own is None or value.get("policy") not in (None, own):
            return value  # said at its field
        return {**value, "policy": own}

    @check_field("planner")
    @classmethod
    def _planner_is_known(cls, name: str | None) -> str | None:
        if name is not None and name not in PLANNERS:
            raise ValueError(f"there is no {name!r}; use one of {', '.join(PLANNERS)}")
        return name

    @check_field("policy")
    @classmethod
    def _planner_agrees(cls, name: str | None, info: ValidationInfo) -> str | None:
        planner = info.data.get("planner")
        if planner is not None and name != PLANNERS[planner]:
            raise ValueError(f"is {PLANNERS[planner]} if {planner} plans; leave it out")
        return name

    @check_field("policy")
    @classmethod
    def _policy_is_known(cls, name: str | None) -> str | None:
        if name is not None:
            check_policy(name, (*policy_names(), *PRESETS))
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
        count = sum(group.count for group in value) if isinstance(value, tuple) else value or 0
        if count > MOST_ACCELERATORS:
            raise ValueError(f"can be {MOST_ACCELERATORS:,} at most, but are {count:,}")
        return value

    @check_field("options")
    @classmethod
    def _options_are_known(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if info.data.get("policy") is not None:
            make_options(info.data["policy"], options)
        return options

    @check_field("catalogue")
    @classmethod
    def _catalogue_is_known(
        cls, given: str | tuple[InstanceType, ...], info: ValidationInfo
    ) -> str | tuple[InstanceType, ...]:
        if not isinstance(given, str):
            return named_once(given)
        return PAPER if given.strip() == PAPER else str(file_beside(given.strip(), info))

    @check_field("instances")
    @classmethod
    def _only_one_form_of_accelerators(
        cls, instances: tuple[Rented, ...] | None, info: ValidationInfo
    ) -> tuple[Rented, ...] | None:
        if instances is not None and info.data.get("accelerators") is not None:
            raise ValueError("stand in place of `accelerators`; give one or the other")
        return instances

    @check_field("popularity")
    @classmethod
    def _popularity_is_known(cls, text: str, info: ValidationInfo) -> str:
        zipf_exponent(text)
        if text.strip() != "equal" and info.data.get("rate", 0) is None:
            raise ValueError("shares out the total `rate` of the scenario; give it, too")
        return text.strip()

    @check_field("sessions")
    @classmethod
    def _sessions_fit(cls, sessions: tuple[Session, ...], info: ValidationInfo) -> tuple[Session, ...]:
        count = sum(session.copies for session in sessions)
        if count > MOST_SESSIONS:
            raise ValueError(f"can be {MOST_SESSIONS:,} at most, but are {count:,} with their copies")
        groups, instances = info.data.get("accelerators"), info.data.get("instances")
        wrong = name_mistakes(sessions)
        if "rate" in info.data:
            wrong += rate_mistakes(sessions, info.data["rate"], use_of(info) == "simulate")
        if groups is not None:
            wrong += profile_mistakes(
                sessions, Hardware.of(groups).kinds, isinstance(groups, int), rented=False
            )
        if instances is not None:
            kinds = [one.type for one in instances if one.count]
            wrong += profile_mistakes(sessions, kinds, counted=False, rented=True)
        if info.data.get("policy") is not None:
            wrong += size_mistakes(info.data["policy"], sessions)
        if wrong:
            raise ValidationError.from_exception_data("sessions", wrong)
        return sessions


def use_of(info: ValidationInfo) -> str | None:
    """Return the command that a file is for: ``simulate``, ``goodput`` or ``plan``; None without a file."""
    context = info.context or {}
    use: str | None = context.get("use", "simulate" if "folder" in context else None)
    return use
