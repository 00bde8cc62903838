"""Who the replicas of a group are: they come, go, and do not answer."""

from __future__ import annotations

import threading
from contextlib import closing
from contextvars import ContextVar

import numpy as np
import pytest

from tests.adapters.replicas.bed import Server, opener
from tests.builders import configuration
from tuner.adapters.backend import Counters
from tuner.adapters.metrics.gpu import GpuUse, gpu_figures
from tuner.adapters.replicas.group import ReplicaGroup
from tuner.adapters.replicas.membership import REFRESH, Membership
from tuner.errors import InvalidInput, TimedOut, UnknownModel, Unreachable


def test_replicas_come_and_go(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """New ones join; what those counted that are gone stays counted; connections are closed."""
    servers["a"].requests = 5
    group.counters()
    gone = servers.pop("a")
    servers["dddd"] = Server("dddd")
    servers["dddd"].requests = 2

    counters = group.counters()

    assert counters.requests == 7
    assert counters.restarts >= 2
    assert gone.closed
    assert "4" not in group.describe().version
    assert "3 replicas" in group.describe().version


def test_replicas_are_asked_for_whoever_asks(servers: dict[str, Server]) -> None:
    """In threads of their own, but what is logged there is about the same target."""
    target: ContextVar[str] = ContextVar("target")
    target.set("resnet")
    seen: list[str] = []

    def connect(name: str) -> Server:
        seen.append(target.get("nobody"))
        return servers[name]

    with closing(Membership("fake://all", lambda: list(servers), connect)) as members:
        answers = members.ask(lambda _: target.get("nobody"))

    assert [*seen, *answers.values()] == ["resnet"] * 6


def test_which_replica_is_left_out_is_said_once(
    now: list[float], servers: dict[str, Server], caplog: pytest.LogCaptureFixture
) -> None:
    """Also of one that was away from the beginning; of one that comes and goes all the time seldom."""
    servers["bb"].up = False
    members = Membership("fake://all", lambda: list(servers), opener(servers), refresh=5.0)

    def said() -> list[str]:
        caplog.clear()
        members.counters()
        return caplog.messages

    with closing(members):
        assert caplog.messages == []  # whoever opens it may only ask what it can do
        assert said() == ["bb is left out for now: bb is away"]
        assert said() == []
        servers["bb"].up = True
        now[0] += 5
        assert said() == ["bb counts from now on"]
        assert said() == []
        servers["bb"].up = False
        assert said() == ["bb is left out for now: bb is away"]
        servers["bb"].up = True
        assert said() == ["bb counts again"]
        for up in (False, True, False, True):
            servers["bb"].up = up
            assert said() == []
        now[0] += 5
        servers["bb"].up = False
        assert said() == ["bb is left out for now: bb is away"]
        del servers["bb"]
        now[0] += 5
        assert said() == ["bb is no replica any more"]


@pytest.mark.parametrize("gone", [False, True])
def test_what_is_so_now_is_known_of_those_that_answer(
    group: ReplicaGroup, servers: dict[str, Server], gone: bool
) -> None:
    """Quantiles, waiting requests and GPUs of one that is away or gone count no more; its totals do."""
    servers["a"].requests, servers["ccc"].requests = 2, 300
    for name, server in servers.items():
        server.pending, server.gpus = float(len(name)), (GpuUse(uuid=name, memory=1.0),)
    before = group.counters()
    servers["ccc"].up = False
    if gone:
        servers.pop("ccc")

    after = group.counters()

    assert (before.quantiles, before.pending, len(before.gpus)) == ({0.95: 3.0}, 6.0, 3)
    assert (after.quantiles, after.pending) == ({0.95: 0.02}, 3.0)
    assert [gpu.uuid for gpu in after.gpus] == ["a", "bb"]
    assert after.requests == before.requests == 302
    assert after.restarts > before.restarts


def test_a_gpu_that_replicas_share_is_one(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """Each server reports the whole of it: its memory and its power are not added up."""
    shared = GpuUse(uuid="GPU-1", share=0.5, memory=8e9, power=300.0)
    servers["a"].gpus = servers["bb"].gpus = (shared,)
    servers["ccc"].gpus = (other := GpuUse(uuid="GPU-2", share=0.1, memory=1e9, power=100.0),)

    readings = [group.counters().gpus for _ in range(2)]

    assert readings[0] == (shared, other)
    assert gpu_figures(readings, 5.0) == {"gpu": 0.3, "gpu_memory": 9e9, "gpu_power": 400.0}


def test_totals_of_many_that_came_and_went(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """Each counts once and for all, also if another comes under its name; they are kept as one sum."""
    restarts = [group.counters().restarts]
    for _ in range(5):
        servers["dddd"] = Server("dddd")
        servers["dddd"].requests = 3
        restarts.append(group.counters().restarts)
        servers.pop("dddd")
        restarts.append(group.counters().restarts)

    counters = group.counters()

    assert (counters.requests, counters.failures) == (15, 3 + 5)
    np.testing.assert_array_equal(counters.batch_counts, [0, 2 + 5, 2 + 10, 15])
    assert restarts == sorted(set(restarts))
    assert isinstance(group._members._totals_of_gone, Counters)


def test_one_that_is_down_at_first_is_opened_later(servers: dict[str, Server], now: list[float]) -> None:
    """Also one of a fixed list, and one that is up before it serves the model; the others serve meanwhile."""
    servers["ccc"].up = False
    with closing(
        ReplicaGroup(Membership("fake://a,bb,ccc", lambda: ["a", "bb", "ccc"], opener(servers)))
    ) as group:
        opened = [group.counters()]
        servers["ccc"].up = servers["ccc"].loading = True
        now[0] += REFRESH
        opened.append(group.counters())
        servers["ccc"].loading = False
        opened.append(group.counters())
        now[0] += REFRESH
        opened.append(group.counters())

        group.apply(configuration(batch=8))

        assert [counters.failures for counters in opened] == [2, 2, 2, 3]
        assert opened[2].restarts == opened[0].restarts < opened[3].restarts
        assert group.replicas == 3
        assert [server.running for server in servers.values()] == [configuration(batch=8)] * 3


def test_one_that_lets_us_wait_is_asked_every_half_minute(
    servers: dict[str, Server], now: list[float]
) -> None:
    """A window asks more often, and would wait each time; when it answers again it belongs to the group."""
    with closing(ReplicaGroup(Membership("fake://all", lambda: list(servers), servers.__getitem__))) as group:
        servers["ccc"].silent = True
        for _ in range(3):
            group.counters()
            group.current()
        asked = servers["ccc"].asked
        servers["ccc"].silent = False
        group.apply(configuration(batch=8))
        now[0] += REFRESH
        back = group.counters()

        assert (asked, servers["a"].asked) == (3, 12)  # twice when it was opened
        assert back.failures == 3
        assert group.current() == configuration()  # what it runs, and has to be changed
        assert group.replicas == 3


def test_where_all_let_us_wait_all_are_asked(servers: dict[str, Server], now: list[float]) -> None:
    """As one server would be: the first that answers again is the group."""
    with closing(ReplicaGroup(Membership("fake://all", lambda: list(servers), servers.__getitem__))) as group:
        for server in servers.values():
            server.silent = True
        for _ in range(2):
            with pytest.raises(TimedOut, match="a: no answer in time"):
                group.counters()
        servers["bb"].silent = False

        assert group.counters().failures == 1
        assert group.counters().failures == 1
        assert [server.asked for server in servers.values()] == [5, 6, 5]


def test_those_that_are_down_are_tried_at_once(servers: dict[str, Server]) -> None:
    """Each may take its time to say nothing."""
    all_begun = threading.Barrier(3)
    servers["bb"].up = servers["ccc"].up = False

    def connect(target: str) -> Server:
        all_begun.wait(timeout=60)
        return opener(servers)(target)

    with closing(ReplicaGroup(Membership("fake://all", lambda: list(servers), connect))) as group:
        assert group.replicas == 1


def test_one_that_does_not_serve_the_model_at_first_is_opened_later(
    servers: dict[str, Server], now: list[float]
) -> None:
    """The others are no worse for it."""
    servers["bb"].loading = True

    with closing(ReplicaGroup(Membership("fake://all", lambda: list(servers), opener(servers)))) as group:
        opened = [group.counters().failures]
        servers["bb"].loading = False
        now[0] += REFRESH
        opened.append(group.counters().failures)

        assert opened == [2, 3]


def test_a_model_that_none_serves_is_a_mistake(servers: dict[str, Server]) -> None:
    """The user has to correct its name, also where a replica is down."""
    servers["a"].up = False
    servers["bb"].loading = servers["ccc"].loading = True

    with pytest.raises(UnknownModel):
        ReplicaGroup(Membership("fake://all", lambda: list(servers), opener(servers)))


def test_a_mistake_at_first_leaves_nothing_open(servers: dict[str, Server]) -> None:
    """The user has to correct the target."""

    def connect(target: str) -> Server:
        if target == "bb":
            raise InvalidInput("knob colour", "the model has no such knob")
        return opener(servers)(target)

    with pytest.raises(InvalidInput, match="knob colour"):
        ReplicaGroup(Membership("fake://all", lambda: list(servers), connect))
    assert servers["a"].closed
    assert servers["ccc"].closed


def test_all_were_replaced_by_one_that_does_not_serve_yet(servers: dict[str, Server]) -> None:
    """Then the group is away, as one server would be, until it does."""
    with closing(
        ReplicaGroup(Membership("fake://all", lambda: list(servers), opener(servers), refresh=0.0))
    ) as group:
        servers.clear()
        servers["new"] = Server("new")
        servers["new"].loading = True

        for _ in range(2):
            with pytest.raises(Unreachable, match="does not serve 'm'"):
                group.counters()
        servers["new"].loading = False
        assert group.counters().failures == 1


def test_one_that_never_joined_and_is_gone_is_forgotten(servers: dict[str, Server]) -> None:
    """It was away when it was found, and is spoken of no more."""
    servers["ccc"].up = False

    with closing(
        ReplicaGroup(Membership("fake://all", lambda: list(servers), opener(servers), refresh=0.0))
    ) as group:
        assert "ccc is away (1 of 3 replicas)" in group.describe().notes
        assert group.describe().version.endswith(", 2 of 3 replicas")
        servers.pop("ccc")

        assert group.describe().notes == ("a note",)


def test_a_failed_look_up_loses_no_replica(
    servers: dict[str, Server], caplog: pytest.LogCaptureFixture
) -> None:
    """Those that are known are asked, with one warning; if none is known yet, nothing can be opened."""
    lost: list[bool] = []

    def find() -> list[str]:
        if lost:
            raise Unreachable("triton.svc cannot be looked up")
        return list(servers)

    group = ReplicaGroup(Membership("fake://all", find, servers.__getitem__, refresh=0.0))
    before = group.counters().restarts
    lost.append(True)
    during = [group.counters(), group.counters()]
    lost.clear()
    servers["dddd"] = Server("dddd")

    assert [(found.failures, found.restarts) for found in during] == [(3, before), (3, before)]
    assert len([record for record in caplog.records if "going on with the replicas" in record.message]) == 1
    assert group.counters().failures == 4
    group.close()
    lost.append(True)
    with pytest.raises(Unreachable, match="looked up"):
        ReplicaGroup(Membership("fake://all", find, servers.__getitem__))


def test_a_look_up_that_takes_long_is_not_due_again_at_once(
    servers: dict[str, Server], now: list[float]
) -> None:
    """However long it takes to fail: a window that waited for it each time would not end in time."""
    slow: list[float] = []
    outage = False

    def find() -> list[str]:
        if outage:
            slow.append(now[0])
            now[0] += REFRESH + 10
            raise Unreachable("triton.svc cannot be looked up")
        return list(servers)

    with closing(ReplicaGroup(Membership("fake://all", find, servers.__getitem__))) as group:
        outage = True
        now[0] += REFRESH
        for _ in range(3):
            group.counters()

        assert slow == [REFRESH]


def test_one_that_let_us_wait_is_asked_when_no_other_answers(
    servers: dict[str, Server], now: list[float]
) -> None:
    """The group is away only when none answers."""
    with closing(ReplicaGroup(Membership("fake://all", lambda: list(servers), servers.__getitem__))) as group:
        servers["ccc"].silent = True
        group.counters()
        servers["ccc"].silent = False
        servers["a"].up = servers["bb"].up = False

        assert group.current() == configuration()
        assert group.replicas == 1
