"""What must hold between the fields of a scenario: mistakes are returned with their place in the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic_core import InitErrorDetails

from tuner.cluster.scenario.rental import Rented
from tuner.cluster.scenario.session import Session
from tuner.files.schema import mistake
from tuner.planning.pools.catalogue import InstanceType
from tuner.scheduling.catalogue import DISTRIBUTION_POLICIES, distributes

__all__ = [
    "instance_mistakes",
    "name_mistakes",
    "names",
    "profile_mistakes",
    "rate_mistakes",
    "size_mistakes",
    "sizes_problem",
    "unread_mistakes",
]

PLANNER_FIELDS = ("epoch_s", "load_s", "margin", "memory_mib")
"""Fields of a scenario that only planners read."""


def names(session: Session) -> list[str]:
    """Return the names of a session's copies."""
    return [session.name] if session.copies == 1 else [f"{session.name}-{i}" for i in range(session.copies)]


def name_mistakes(sessions: Sequence[Session]) -> list[InitErrorDetails]:
    """Return the sessions whose name another one has, too."""
    counts = Counter(name for session in sessions for name in names(session))
    doubles = [[name for name in names(session) if counts[name] > 1] for session in sessions]
    return [
        mistake(f"{double[0]!r} is the name of two; rename one", index, "name")
        for index, double in enumerate(doubles)
        if double
    ]


def rate_mistakes(sessions: Sequence[Session], total: float | None, needed: bool) -> list[InitErrorDetails]:
    """Return the sessions that have a rate although the scenario has one, or that lack a rate.

    Args:
        sessions: Of the scenario.
        total: The scenario's rate.
        needed: Whether every session must have a rate.
    """
    wrong = []
    for index, session in enumerate(sessions):
        if total is not None and session.rate is not None:
            problem = "the scenario's `rate` sets the rates of all sessions; give one or the other"
            wrong.append(mistake(problem, index, "rate"))
        if total is None and needed and session.needs_rate:
            problem = "give requests/s, here or as `rate` of the scenario for all sessions together"
            wrong.append(mistake(f"has no rate; {problem}", index))
    return wrong


def profile_mistakes(
    sessions: Sequence[Session], kinds: Sequence[str], counted: bool, rented: bool
) -> list[InitErrorDetails]:
    """Return the sessions that lack a profile for some kind of accelerator.

    Args:
        sessions: Of the scenario.
        kinds: Of the accelerators.
        counted: Whether the accelerators are only counted.
        rented: Whether they are instances of the catalogue's types.
    """
    wrong = []
    for index, session in enumerate(sessions):
        missing = [kind for kind in kinds if session.profiles is not None and kind not in session.profiles]
        if missing and counted:
            problem = "write the accelerators as a list of {kind, count}, to say which has which profile"
            wrong.append(mistake(problem, index, "profiles"))
        elif missing:
            problem = f"has no profile for the accelerators of kind {missing[0]!r}"
            wrong.append(mistake(problem, index, "profiles"))
        if session.model is not None and not rented:
            problem = (
                "is a model of the catalogue; rent `instances` in place of `accelerators`, or give a profile"
            )
            wrong.append(mistake(problem, index, "model"))
    return wrong


def size_mistakes(policy: str, sessions: Sequence[Session]) -> list[InitErrorDetails]:
    """Return the sessions with sizes under a batching policy, or without under a distribution policy."""
    wrong, by_size = [], distributes(policy)
    for index, session in enumerate(sessions):
        if session.sizes is not None and not by_size:
            wrong.append(mistake(sizes_problem(policy), index, "sizes"))
        if session.sizes is None and session.model is not None and by_size:
            problem = f"has no sizes, by which {policy} distributes requests; write sizes: paper"
            wrong.append(mistake(problem, index))
    return wrong


def sizes_problem(policy: str) -> str:
    """Return why a session under a batching policy has no sizes."""
    others = ", ".join(DISTRIBUTION_POLICIES)
    return f"{policy} makes batches of requests of one size; leave sizes out, or use one of {others}"


def unread_mistakes(
    planner: str | None, given: Collection[str], options: Mapping[str, Any], sessions: Sequence[Session]
) -> list[InitErrorDetails]:
    """Return the fields and options that the file gives, and its planner, or a simulation without, ignores.

    Args:
        planner: Of the scenario.
        given: The names of the fields that the file has.
        options: Of the policy.
        sessions: Of the scenario.
    """
    if planner is None:
        problem = "only a `planner` reads it, and there is none; leave it out, or write planner: nexus"
        places: list[tuple[str | int, ...]] = [(name,) for name in PLANNER_FIELDS if name in given]
        sized = [index for index, session in enumerate(sessions) if "memory_mib" in session.model_fields_set]
        places += [("sessions", index, "memory_mib") for index in sized]
        return [mistake(problem, *place) for place in places]
    if planner == "symphony":
        problem = "symphony plans for the requests that come, without a margin; leave it out"
        return [mistake(problem, "margin")] if "margin" in given else []
    problem = f"{planner} makes the plans, of the rates that come; leave it out"
    unread = [name for name in ("placement", "rates") if options.get(name) is not None]
    return [mistake(problem, "options", name) for name in unread]


def instance_mistakes(
    instances: Sequence[Rented], types: Sequence[InstanceType], sessions: Sequence[Session]
) -> list[InitErrorDetails]:
    """Return the instances that the catalogue lacks, or that do not run the models of the sessions."""
    offered = {kind.name: kind for kind in types}
    wrong = []
    for index, rented in enumerate(instances):
        kind = offered.get(rented.type)
        if kind is None:
            problem = f"the catalogue has no {rented.type!r}; use one of {', '.join(offered)}"
            wrong.append(mistake(problem, "instances", index, "type"))
            continue
        count = sum(one.count for one in instances if one.type == rented.type)
        if count > kind.max_count:
            problem = f"the catalogue has {kind.max_count} of {kind.name}, but the pool {count}"
            wrong.append(mistake(problem, "instances", index, "count"))
        for model in dict.fromkeys(one.model for one in sessions if one.model is not None):
            if rented.count and model not in kind.profile:
                problem = f"{kind.name} has no profile of {model}; leave it out of the pool"
                wrong.append(mistake(problem, "instances", index, "type"))
    if not any(rented.count for rented in instances):
        wrong.append(mistake("the pool is empty; rent at least one instance", "instances"))
    return wrong
