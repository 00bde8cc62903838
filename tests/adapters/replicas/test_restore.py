"""What replicas ran at first is put back, also where they came and went meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.adapters.replicas.bed import Opened, Server, opener
from tests.builders import configuration
from tuner.adapters.replicas.group import ReplicaGroup
from tuner.adapters.replicas.membership import REFRESH, Membership
from tuner.errors import TimedOut, Unreachable
from tuner.knobs import Configuration

FIRST, APPLIED = configuration(), configuration(batch=8)


def group_of(servers: dict[str, Server], refresh: float = 0.0) -> ReplicaGroup:
    """A group of servers; each is opened anew when it comes."""

    def connect(target: str) -> Any:
        return Opened(opener(servers)(target))

    return ReplicaGroup(Membership("fake://all", lambda: list(servers), connect, refresh=refresh))


@pytest.fixture
def group(servers: dict[str, Server]) -> Iterator[ReplicaGroup]:
    opened = group_of(servers)
    yield opened
    opened.close()


def leave_and_return(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """The replica ``a`` is not found for a while."""
    gone = servers.pop("a")
    group.counters()
    servers["a"] = gone
    group.counters()


def test_one_that_came_back_with_what_was_applied(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """It ran that when it was opened anew, which is not what was found there."""
    group.apply(APPLIED)
    leave_and_return(group, servers)

    group.restore()

    assert [server.running for server in servers.values()] == [FIRST] * 3


@pytest.mark.parametrize("missed", [configuration(batch=4), FIRST], ids=["something else", "its own"])
def test_one_that_came_back_is_changed_once(
    group: ReplicaGroup, servers: dict[str, Server], missed: Configuration
) -> None:
    """Not first to what it ran when it was opened anew, which none is to run."""
    group.apply(missed)
    gone = servers.pop("a")
    group.apply(APPLIED)
    servers["a"] = gone
    group.apply(APPLIED)
    gone.applied.clear()

    group.restore()

    assert gone.applied == [FIRST]


def test_one_that_is_back_and_was_not_looked_up_yet(servers: dict[str, Server], now: list[float]) -> None:
    """It was changed, so the replicas are looked up before it is given up."""
    with closing(group_of(servers, REFRESH)) as group:
        group.apply(APPLIED)
        gone = servers.pop("a")
        now[0] += REFRESH
        group.counters()
        servers["a"] = gone

        group.restore()

    assert [server.running for server in servers.values()] == [FIRST] * 3


def test_one_that_joined_with_what_was_applied(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """As from a repository of models that all replicas share: it gets what most of the others ran."""
    group.apply(APPLIED)
    servers["dddd"] = Server("dddd")
    servers["dddd"].running = APPLIED
    group.counters()

    group.restore()

    assert [server.running for server in servers.values()] == [FIRST] * 4


def test_each_gets_what_it_ran_itself(servers: dict[str, Server]) -> None:
    """Replicas that differ at first differ in the end, whether they were away meanwhile or not."""
    odd = configuration(batch=2)
    servers["a"].running = odd
    with closing(group_of(servers)) as group:
        group.apply(APPLIED)
        leave_and_return(group, servers)

        group.restore()

    found = {name: server.running for name, server in servers.items()}
    assert found == {"a": odd, "bb": FIRST, "ccc": FIRST}


@pytest.mark.parametrize(
    ("back", "why"), [(False, "it is no replica any more"), (True, "a is away")], ids=["gone", "not up"]
)
@pytest.mark.parametrize("change", ["made", "in doubt", "on trial"])
def test_one_that_was_changed_and_cannot_be_reached_is_named(
    group: ReplicaGroup, servers: dict[str, Server], back: bool, why: str, change: str
) -> None:
    """The others run what they ran at first."""
    if change == "in doubt":
        servers["a"].fails[APPLIED] = TimedOut("it may still load")
    if change == "on trial":
        group.try_one(APPLIED, lambda _: None)
    else:
        group.apply(APPLIED)
    gone = servers.pop("a")
    group.counters()
    if back:
        gone.up = False
        servers["a"] = gone

    with pytest.raises(Unreachable, match=rf"put back everywhere; .* as before: a \({why}\)$"):
        group.restore()

    assert [servers[name].running for name in ("bb", "ccc")] == [FIRST] * 2
    gone.up, servers["a"] = True, gone
    group.restore()
    assert gone.running == FIRST


def test_one_that_left_before_any_change_is_not_missed(
    group: ReplicaGroup, servers: dict[str, Server]
) -> None:
    """It runs what it ran."""
    servers.pop("a")
    group.apply(APPLIED)

    group.restore()

    assert [server.running for server in servers.values()] == [FIRST] * 2
