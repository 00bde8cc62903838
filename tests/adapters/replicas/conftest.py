"""A group of three replicas that live in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adapters.replicas.bed import Server
from tuner.adapters.replicas.group import ReplicaGroup
from tuner.adapters.replicas.membership import Membership


@pytest.fixture
def servers() -> dict[str, Server]:
    return {name: Server(name) for name in ("a", "bb", "ccc")}


@pytest.fixture
def group(servers: dict[str, Server]) -> Iterator[ReplicaGroup]:
    opened = ReplicaGroup(Membership("fake://all", lambda: list(servers), servers.__getitem__, refresh=0.0))
    yield opened
    opened.close()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, s; a test lets it pass."""
    time = [0.0]
    monkeypatch.setattr("tuner.adapters.replicas.membership.time.monotonic", lambda: time[0])
    return time
