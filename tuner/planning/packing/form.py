"""The file of ``tuner plan cluster``: backends with memory, sessions with rate, SLO, profile and memory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Discriminator, Field, Tag, ValidationInfo
from pydantic import field_validator as check_field
from pydantic import model_validator as check_model

from tuner.files.json_text import parse_json
from tuner.files.schema import NotNegative, Positive, Some, StrictPart, file_beside, named_once
from tuner.planning.packing.load import SessionLoad
from tuner.planning.packing.plan import MIB, Backend, ClusterPlan, plan_from_json
from tuner.planning.packing.prefixed import asked_for, prefix_load
from tuner.planning.pools.catalogue import SoundTable, check_line

__all__ = ["KIND", "MOST_BACKENDS", "ClusterFile", "LoadProfile", "PlannedLoad", "PlannedPrefix"]

KIND = "default"
"""The kind of backends that are only counted."""
MOST_BACKENDS = 100_000
"""There can be in a file, and be needed by a plan."""
MOST_SESSIONS = 100_000
LARGEST_BATCH = 1024
"""Requests; larger batches are never formed from a line."""
FASTEST = 1e9
"""Requests/s."""
LONGEST = 1e9
"""ms; more than a week."""

Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(strict=True, ge=1, le=MOST_BACKENDS)]
Mebibytes = Annotated[Positive, Field(le=1e9)]


class LoadProfile(StrictPart):
    """How long a batch executes: a table from batch size to ms, or a line."""

    profile_ms: SoundTable | None = None
    """``{4: 50, 8: 75}``; between the sizes the time is interpolated, larger batches are not formed."""
    alpha_ms: NotNegative | None = None
    """Instead of a table: ms per request of the batch."""
    beta_ms: NotNegative | None = None
    """ms per batch."""
    max_batch: Annotated[int, Field(strict=True, ge=1, le=LARGEST_BATCH)] = LARGEST_BATCH

    @check_model(mode="after")
    def _has_one_form(self) -> LoadProfile:
        line = (self.alpha_ms is not None) + (self.beta_ms is not None)
        given = line + (self.profile_ms is not None) + (getattr(self, "profiles", None) is not None)
        if line == 1 or given not in (1, 2) or (given == 2 and line != 2):
            raise ValueError("needs one profile: profile_ms, or alpha_ms and beta_ms")
        if self.alpha_ms is not None and self.beta_ms is not None:
            check_line(self.alpha_ms, self.beta_ms)
        return self

    def latency(self, slo: float) -> np.ndarray:
        """Return the latency of every batch that can end within an SLO, s, and of 1.   # (B+1,) s."""
        if self.profile_ms is not None:
            sizes = np.arange(1, min(self.profile_ms.known, self.max_batch) + 1)
            times = self.profile_ms.latency(sizes)
        else:
            sizes = np.arange(1, self.max_batch + 1)
            times = ((self.alpha_ms or 0.0) * sizes + (self.beta_ms or 0.0)) / 1e3
        useful = max(int(np.count_nonzero(times <= slo)), 1)
        return np.concatenate(([0.0], times[:useful]))


class PlannedLoad(LoadProfile):
    """A session: a model with its SLO, rate and memory."""

    name: Name
    slo_ms: Annotated[Positive, Field(le=LONGEST)]
    """From the arrival of a request to the end of its batch."""
    rate: Annotated[NotNegative, Field(le=FASTEST)]
    """Requests/s."""
    memory_mib: Annotated[NotNegative, Field(le=1e9)] = 0.0
    """Memory that its model takes on a backend, MiB."""
    profiles: dict[str, LoadProfile] | None = None
    """Instead of one profile: one for each kind of backends that can execute it."""
    prefix: Name | None = None
    """What its model shares with others; profile and memory are then those of the rest, its suffix."""

    @check_field("profiles")
    @classmethod
    def _profiles_are_some(cls, profiles: dict[str, LoadProfile] | None) -> dict[str, LoadProfile] | None:
        if profiles is not None and not profiles:
            raise ValueError("needs a profile for each kind of backends")
        return profiles

    def load(self, kind: str, network: float) -> SessionLoad | None:
        """Return the session on a kind of backends, with a part of its SLO, s, left for the network."""
        profile: LoadProfile | None = self
        if self.profiles is not None:
            profile = self.profiles.get(kind)
        if profile is None:
            return None
        budget = max(self.slo_ms / 1e3 - network, 0.0)
        return SessionLoad(
            name=self.name,
            latency=profile.latency(budget),
            budget=budget,
            rate=self.rate,
            memory=self.memory_mib * MIB,
        )


class PlannedPrefix(LoadProfile):
    """The part at their inputs that the models of several sessions have in common."""

    name: Name
    memory_mib: Annotated[NotNegative, Field(le=1e9)] = 0.0


class BackendCount(StrictPart):
    """Equal backends."""

    count: Count | None = None
    """None: as many as are needed."""
    memory_mib: Mebibytes | None = None
    """Of each; None for no limit."""


class NamedBackend(StrictPart):
    """One backend."""

    name: Name
    memory_mib: Mebibytes | None = None
    kind: Name = KIND


def _form(value: Any) -> str:
    return "list" if isinstance(value, list | tuple) else "count"


class ClusterFile(StrictPart):
    """What is to be packed, and where."""

    backends: Annotated[
        Annotated[BackendCount, Tag("count")] | Annotated[tuple[NamedBackend, ...], Some, Tag("list")],
        Discriminator(_form),
    ] = BackendCount()
    sessions: Annotated[tuple[PlannedLoad, ...], Some]
    prefixes: tuple[PlannedPrefix, ...] = ()
    """What models have in common: sessions with one prefix and one SLO share batches."""
    network_ms: NotNegative = 0.0
    """Left of every SLO for the network."""
    previous: str | None = None
    """The stored plan of the epoch before, a file beside this one: few models move away from it."""

    @check_field("backends", "sessions", "prefixes")
    @classmethod
    def _names_differ(cls, value: Any) -> Any:
        if isinstance(value, tuple) and len(named_once(value)) > MOST_SESSIONS:
            raise ValueError(f"can be {MOST_SESSIONS:,} at most, but are {len(value):,}")
        return value

    @check_field("previous")
    @classmethod
    def _previous_is_there(cls, name: str | None, info: ValidationInfo) -> str | None:
        if name is None:
            return None
        path = file_beside(name, info)
        try:
            plan_from_json(parse_json(path.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"{path} is no plan that `tuner plan cluster --json` stored: {error}") from None
        return str(path)

    @check_model(mode="after")
    def _kinds_are_known(self) -> ClusterFile:
        kinds = {backend.kind for backend in self.each_backend or ()} or {KIND}
        for session in self.sessions:
            if session.profiles is not None and not kinds & set(session.profiles):
                listed = ", ".join(sorted(kinds))
                raise ValueError(f"session {session.name} has a profile for no kind of backends ({listed})")
        return self

    @check_model(mode="after")
    def _prefixes_are_known(self) -> ClusterFile:
        known = {one.name for one in self.prefixes}
        for session in self.sessions:
            if session.prefix is not None and session.prefix not in known:
                raise ValueError(
                    f"session {session.name} has the prefix {session.prefix}, which is not in prefixes"
                )
            if session.prefix is not None and session.profiles is not None:
                raise ValueError(
                    f"session {session.name} has a prefix, and so needs one profile for all backends"
                )
        names = {session.name for session in self.sessions}
        for name in self.members:
            if name in names:
                raise ValueError(f"{name!r} is the name of a prefix and of a session; rename one")
        return self

    @property
    def members(self) -> dict[str, list[PlannedLoad]]:
        """The sessions that share batches, by the name of their load; not those without requests."""
        groups: dict[tuple[str, float], list[PlannedLoad]] = {}
        for session in self.sessions:
            if session.prefix is not None:
                groups.setdefault((session.prefix, session.slo_ms), []).append(session)
        several = Counter(prefix for prefix, _ in groups)
        found = {}
        for (prefix, slo_ms), sessions in groups.items():
            slo = str(slo_ms).removesuffix(".0")
            found[prefix if several[prefix] == 1 else f"{prefix} in {slo} ms"] = asked_for(sessions)
        return found

    def loads(self, kind: str) -> list[SessionLoad | None]:
        """Return what is packed on a kind of backends: every session, or those with one prefix together."""
        network = self.network_ms / 1e3
        found = [one.load(kind, network) for one in self.sessions if one.prefix is None]
        prefixes = {one.name: one for one in self.prefixes}
        for name, sessions in self.members.items():
            prefix = prefixes[sessions[0].prefix or ""]
            suffixes = [load for load in (one.load(kind, network) for one in sessions) if load is not None]
            latency = prefix.latency(suffixes[0].budget)
            found.append(prefix_load(name, latency, suffixes, memory=prefix.memory_mib * MIB))
        return found

    @property
    def each_backend(self) -> list[Backend] | None:
        """The backends; None if there are as many as are needed."""
        if isinstance(self.backends, tuple):
            return [
                Backend(name=one.name, memory=_bytes(one.memory_mib), kind=one.kind) for one in self.backends
            ]
        if self.backends.count is None:
            return None
        memory = _bytes(self.backends.memory_mib)
        return [Backend(name=f"backend-{i}", memory=memory, kind=KIND) for i in range(self.backends.count)]

    @property
    def memory(self) -> float:
        """Bytes of each backend if there are as many as are needed."""
        return _bytes(None if isinstance(self.backends, tuple) else self.backends.memory_mib)

    @property
    def previous_plan(self) -> ClusterPlan | None:
        """The plan of the epoch before."""
        if self.previous is None:
            return None
        return plan_from_json(parse_json(Path(self.previous).read_bytes()))


def _bytes(mebibytes: float | None) -> float:
    return np.inf if mebibytes is None else mebibytes * MIB
