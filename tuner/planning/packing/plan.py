"""An executable plan: which backend serves which sessions, in which batches and cycles, and the routes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["MIB", "Backend", "ClusterPlan", "PlannedBackend", "PlannedSession", "Unserved", "plan_from_json"]

MIB = float(1 << 20)


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """An accelerator that a plan can use."""

    name: str
    memory: float = math.inf
    """Bytes."""
    kind: str = "default"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedSession:
    """One session on one backend."""

    name: str
    batch: int
    """Requests of each duty cycle."""
    rate: float
    """requests/s that this backend serves of it."""
    execution: float = 0.0
    """Time that its batch takes, s."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedBackend:
    """What one backend does in every duty cycle."""

    name: str
    cycle: float
    """s"""
    sessions: tuple[PlannedSession, ...]
    """In the order of their turns."""
    memory: float = 0.0
    """Bytes of all its models."""
    occupancy: float = 0.0
    """Part of the cycle that is executed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unserved:
    """A session, or a part of its rate, that the plan does not serve."""

    name: str
    rate: float
    """requests/s"""
    why: str
    never: bool = False
    """Whether no number of these backends could serve it."""

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the plan's ``unserved``."""
        return {"name": self.name, "rate": self.rate, "why": self.why}


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterPlan:
    """The plan of an epoch."""

    backends: tuple[PlannedBackend, ...]
    load: float
    """Accelerators needed if each executed the best batches without a pause: the lower bound of the paper."""
    unserved: tuple[Unserved, ...] = ()
    loaded: int = 0
    """Models that a backend must load which it did not have in the epoch before."""
    exact: int | None = None
    """The fewest accelerators, if they were found by integer programming."""
    greedy: int | None = None
    """Accelerators of the greedy packing, if ``exact`` is known."""
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The sessions that share batches, as they share a prefix, by the name under which they are planned."""

    @property
    def lower_bound(self) -> int:
        """The load in whole accelerators."""
        return math.ceil(self.load - 1e-9)

    @property
    def hosted(self) -> dict[str, dict[str, float]]:
        """requests/s of each session by backend."""
        found: dict[str, dict[str, float]] = {}
        for backend in self.backends:
            for session in backend.sessions:
                found.setdefault(session.name, {})[backend.name] = session.rate
        return found

    @property
    def routes(self) -> dict[str, dict[str, float]]:
        """The share of a session's requests that every frontend sends to each backend."""
        return {
            session: {backend: rate / sum(rates.values()) for backend, rate in rates.items()}
            for name, rates in self.hosted.items()
            for session in self.members.get(name, (name,))
        }

    def renamed(self, names: Mapping[str, str]) -> ClusterPlan:
        """Return the plan with some of its sessions under other names."""
        backends = []
        for backend in self.backends:
            sessions = (replace(one, name=names.get(one.name, one.name)) for one in backend.sessions)
            backends.append(replace(backend, sessions=tuple(sessions)))
        return replace(self, backends=tuple(backends))

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``tuner plan cluster --json``."""
        content: dict[str, Any] = {
            "backends": [_backend_json(backend) for backend in self.backends],
            "accelerators": len(self.backends),
            "lower_bound": self.lower_bound,
            "unserved": [one.to_json() for one in self.unserved],
            "routes": self.routes,
            "loaded": self.loaded,
        }
        if self.members:
            content["prefixes"] = {name: list(sessions) for name, sessions in self.members.items()}
        if self.exact is not None:
            content |= {"exact": self.exact, "greedy": self.greedy}
        return content


def _backend_json(backend: PlannedBackend) -> dict[str, Any]:
    return {
        "name": backend.name,
        "duty_cycle_ms": round(backend.cycle * 1e3, 9),
        "sessions": [
            {"name": one.name, "batch": one.batch, "rate": round(one.rate, 9)} for one in backend.sessions
        ],
        "memory_mib": round(backend.memory / MIB, 6),
        "occupancy": round(backend.occupancy, 9),
    }


def plan_from_json(content: Mapping[str, Any]) -> ClusterPlan:
    """Return a stored plan as far as the next epoch needs it: who hosts what, and who shares batches.

    Raises:
        ValueError, KeyError, TypeError, OverflowError: It is none.
    """
    backends = []
    for backend in content["backends"]:
        sessions = tuple(
            PlannedSession(name=str(one["name"]), batch=int(one["batch"]), rate=float(one["rate"]))
            for one in backend["sessions"]
        )
        if not all(one.batch >= 1 and 0 < one.rate < math.inf for one in sessions):
            raise ValueError(f"backend {backend['name']} has a batch or a rate that is not positive")
        cycle = float(backend["duty_cycle_ms"]) / 1e3
        backends.append(PlannedBackend(name=str(backend["name"]), cycle=cycle, sessions=sessions))
    if len({backend.name for backend in backends}) != len(backends):
        raise ValueError("two backends have one name")
    members = {
        str(name): tuple(map(str, sessions)) for name, sessions in dict(content.get("prefixes", {})).items()
    }
    return ClusterPlan(backends=tuple(backends), load=0.0, members=members)
