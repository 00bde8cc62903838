"""Several servers as one backend, with plain fakes; the real ones are in triton/test_replicas.py."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NoReturn

import numpy as np
import pytest

from tests.builders import SPACE, configuration
from tuner.adapters.backend import ApplyReport, Counters, Description
from tuner.adapters.connection.endpoint import Endpoint
from tuner.adapters.metrics.gpu import GpuUse
from tuner.adapters.replicas.group import ReplicaGroup
from tuner.adapters.replicas.membership import REFRESH, Membership
from tuner.adapters.replicas.targets import replicas_of
from tuner.errors import (
    AdapterError,
    InvalidInput,
    Refused,
    StorageError,
    TimedOut,
    TunerError,
    UnknownModel,
    Unreachable,
)
from tuner.knobs import ApplyCost, Configuration, KnobSpace


class Server:
    """One replica that can go away, refuse and lag behind."""

    def __init__(self, target: str, space: KnobSpace = SPACE) -> None:
        self.target, self.space = target, space
        self.running = configuration()
        self.requests, self.up, self.refuses, self.closed = 0, True, False, False
        self.applied: list[Configuration] = []
        self.fails: dict[Configuration, TunerError] = {}  # by what it is to run
        self.loading = False  # whether it is up and does not serve the model yet
        self.affected: float | None = None
        self.pending: float | None = None
        self.gpus: tuple[GpuUse, ...] = ()

    def _answer(self) -> None:
        if not self.up:
            raise Unreachable(f"{self.target} is away")

    def endpoint(self) -> Endpoint:
        return Endpoint(wire="wire", address=self.target, model="m")

    def describe(self) -> Description:
        self._answer()
        return Description(
            target=self.target,
            server="fake",
            version="1",
            model="m",
            writable=True,
            quantiles=True,
            quantile_memory=60.0,
            processes=(len(self.target),),
            notes=("a note",),
        )

    def current(self) -> Configuration:
        self._answer()
        return self.running

    def apply(self, wanted: Configuration) -> ApplyReport:
        self._answer()
        if self.refuses:
            raise Refused("no")
        if wanted in self.fails:
            raise self.fails[wanted]
        changed, self.running = wanted != self.running, wanted
        self.applied.append(wanted)
        return ApplyReport(
            configuration=wanted, changed=changed, cost=ApplyCost.RELOAD, seconds=0.1, settle=1.5,
            affected=self.affected,
        )  # fmt: skip

    def counters(self) -> Counters:
        self._answer()
        return Counters(
            time=float(self.requests),
            requests=self.requests,
            failures=1,
            latency=0.1 * self.requests,
            queue=0.0,
            compute=0.1,
            inferences=self.requests,
            batch_counts=np.arange(len(self.target)),
            batch_seconds=np.ones(len(self.target)),
            pending=self.pending,
            quantiles={0.95: 0.01 * self.requests} if self.requests else {},
            gpus=self.gpus,
        )

    def profile(self) -> None:
        return None

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def servers() -> dict[str, Server]:
    return {name: Server(name) for name in ("a", "bb", "ccc")}


@pytest.fixture
def group(servers: dict[str, Server]) -> Iterator[ReplicaGroup]:
    opened = ReplicaGroup(Membership("fake://all", lambda: list(servers), servers.__getitem__, refresh=0.0))
    yield opened
    opened.close()


def test_totals_are_added(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """Counts and batches are sums; of quantiles the worst counts."""
    servers["a"].requests, servers["bb"].requests = 5, 7

    counters = group.counters()

    assert (counters.requests, counters.failures) == (12, 3)
    assert counters.latency == pytest.approx(1.2)
    np.testing.assert_array_equal(counters.batch_counts, [0, 2, 2])
    assert counters.quantiles == {0.95: 0.07}


def test_all_are_changed(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """One after the other; what the report says holds for all."""
    wanted = configuration(batch=8)

    report = group.apply(wanted)

    assert [server.applied for server in servers.values()] == [[wanted]] * 3
    assert group.current() == wanted
    assert (report.changed, report.cost, report.settle) == (True, ApplyCost.RELOAD, 1.5)


def test_affected_requests_are_added(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """Those of the replicas that were changed; if one did not count them, nobody knows."""
    for server, affected in zip(servers.values(), (2.0, 3.0, None), strict=True):
        server.affected = affected

    assert group.apply(configuration(batch=8)).affected is None
    servers["ccc"].affected = 0.0
    assert group.apply(configuration(batch=4)).affected == 5.0


def test_if_one_refuses_all_go_back(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """None is left with what another has refused."""
    servers["bb"].refuses = True

    with pytest.raises(Refused, match=r"bb: no; the other replicas went back"):
        group.apply(configuration(batch=8))

    assert {server.running for server in servers.values()} == {configuration()}


@pytest.mark.parametrize(
    "error", [InvalidInput("knob x", "below 8 rows"), StorageError("disk full"), AdapterError("odd")]
)
def test_whatever_fails_at_one_all_go_back(
    group: ReplicaGroup, servers: dict[str, Server], error: TunerError
) -> None:
    """Not only what a server refuses."""
    wanted = configuration(batch=8)
    servers["bb"].fails[wanted] = error

    with pytest.raises(Refused, match=f"bb: {error}; the other replicas went back"):
        group.apply(wanted)

    assert [server.running for server in servers.values()] == [configuration()] * 3
    assert servers["ccc"].applied == []


def test_one_that_may_change_later_makes_no_refusal(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """All are asked to go back, and the caller knows of which one it is not known."""
    wanted = configuration(batch=8)
    servers["bb"].fails[wanted] = TimedOut("it may still load")
    servers["ccc"].refuses = True

    with pytest.raises(TimedOut, match=r"ccc: no; not certain to run as before: bb \(it may still load\)"):
        group.apply(wanted)

    assert servers["a"].applied == [wanted, configuration()]
    assert servers["bb"].applied == [configuration()]


def test_one_that_does_not_go_back_keeps_no_other_from_it(
    group: ReplicaGroup, servers: dict[str, Server]
) -> None:
    """Nor is the change a refusal then."""
    wanted = configuration(batch=8)
    servers["a"].fails[configuration()] = AdapterError("out of memory")
    servers["ccc"].refuses = True

    with pytest.raises(AdapterError, match=r"ccc: no; not certain .*: a \(out of memory\)") as caught:
        group.apply(wanted)

    assert not isinstance(caught.value, Refused)
    assert servers["bb"].applied == [wanted, configuration()]


def test_none_answers_a_change_in_time(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """Each may come about later, as at one server."""
    for server in servers.values():
        server.fails[configuration(batch=8)] = TimedOut("it may still load")

    with pytest.raises(TimedOut, match=r"a \(it may still load\)"):
        group.apply(configuration(batch=8))


def test_all_are_asked_before_one_is_changed() -> None:
    """What only the last would not take costs no reload, and no trial."""

    class Careful(Server):
        def check(self, wanted: Configuration) -> None:
            if self.target == "bb" and wanted["max_batch_size"] == 8:
                raise InvalidInput("knob max_batch_size", "8 is below 16, the rows that clients send")

    servers = {name: Careful(name) for name in ("a", "bb")}
    with closing(ReplicaGroup(Membership("fake://all", lambda: list(servers), servers.__getitem__))) as group:
        for change in (group.apply, lambda wanted: group.try_one(wanted, lambda settle: None)):
            with pytest.raises(InvalidInput, match="rows that clients send"):
                change(configuration(batch=8))

        assert [server.applied for server in servers.values()] == [[], []]
        group.apply(configuration(batch=4))


def test_one_that_is_away_is_left_out(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """The others serve and are changed; what it had counted stays; the window in which it goes is marked."""
    for server in servers.values():
        server.requests = 10
    before = group.counters()
    servers["ccc"].up = False
    servers["a"].requests = 14

    during = group.counters()
    group.apply(configuration(batch=8))

    assert (before.requests, during.requests) == (30, 34)
    assert group.replicas == 2
    assert during.restarts > before.restarts
    assert group.current() == configuration(batch=8)
    assert "ccc is away (1 of 3 replicas)" in group.describe().notes


def test_the_odd_one_out_is_what_runs(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """So that the caller sees a difference and applies its configuration again."""
    servers["ccc"].up = False
    group.apply(configuration(batch=8))

    servers["ccc"].up = True

    assert group.current() == configuration()
    group.apply(configuration(batch=8))
    assert group.current() == configuration(batch=8)


def test_all_away(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """Then the group is."""
    for server in servers.values():
        server.up = False

    for ask in (group.counters, group.current, group.describe):
        with pytest.raises(Unreachable):
            ask()


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
    assert isinstance(group._members._gone, Counters)


def opener(servers: dict[str, Server]) -> Callable[[str], Server]:
    """What opens those that are up and serve the model."""

    def connect(target: str) -> Server:
        if servers[target].loading:
            raise UnknownModel("m", ())
        servers[target]._answer()
        return servers[target]

    return connect


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, s; a test lets it pass."""
    time = [0.0]
    monkeypatch.setattr("tuner.adapters.replicas.membership.time.monotonic", lambda: time[0])
    return time


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


def test_those_that_are_down_are_tried_at_once(servers: dict[str, Server]) -> None:
    """Each may take its time to say nothing."""
    all_begun = threading.Barrier(3)
    servers["bb"].up = servers["ccc"].up = False

    def connect(target: str) -> Server:
        all_begun.wait(timeout=10)
        return opener(servers)(target)

    with closing(ReplicaGroup(Membership("fake://all", lambda: list(servers), connect))) as group:
        assert group.replicas == 1


def test_a_mistake_at_first_leaves_nothing_open(servers: dict[str, Server]) -> None:
    """The user has to correct the target."""
    servers["bb"].loading = True

    with pytest.raises(UnknownModel):
        ReplicaGroup(Membership("fake://all", lambda: list(servers), opener(servers)))
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


def test_requests_go_to_all(group: ReplicaGroup) -> None:
    """By turns."""
    assert group.endpoint().address == "a,bb,ccc"


def test_grids_in_common(servers: dict[str, Server]) -> None:
    """A value that one does not take is not offered; other knobs are a mistake."""
    small = KnobSpace([SPACE.knobs[0].__class__(name="max_batch_size", grid=(1, 4), default=1)])
    two = {"a": Server("a", KnobSpace(SPACE.knobs[:1])), "b": Server("b", small)}

    group = ReplicaGroup(Membership("fake://two", lambda: list(two), two.__getitem__))

    assert group.space.knobs[0].grid == (1, 4)
    two["b"].space = SPACE
    with pytest.raises(InvalidInput, match="same knobs"):
        ReplicaGroup(Membership("fake://two", lambda: list(two), two.__getitem__))


def test_lists_of_hosts() -> None:
    """An option with as many values as hosts is shared out."""
    find = replicas_of("triton://a:8001,b:9001/m?metrics=8002,9002&version=3", 8001)

    assert find is not None
    assert find() == [
        "triton://a:8001/m?metrics=8002&version=3",
        "triton://b:9001/m?metrics=9002&version=3",
    ]
    assert replicas_of("triton://a:8001/m", 8001) is None


def test_a_name_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its addresses is a replica."""
    found = [
        (0, 0, 0, "", ("10.0.0.2", 8001)),
        (0, 0, 0, "", ("10.0.0.1", 8001)),
        (0, 0, 0, "", ("::1", 8001)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    find = replicas_of("triton://triton.svc/m?replicas=dns&metrics=off", 8001)

    assert find is not None
    assert find() == [
        "triton://10.0.0.1:8001/m?metrics=off",
        "triton://10.0.0.2:8001/m?metrics=off",
        "triton://[::1]:8001/m?metrics=off",
    ]
    with pytest.raises(InvalidInput, match="replicas='k8s' is unknown"):
        replicas_of("triton://h/m?replicas=k8s", 8001)
    with pytest.raises(InvalidInput, match="Port could not be cast"):
        replicas_of("triton://h:x/m?replicas=dns", 8001)


def test_a_name_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said so."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)

    find = replicas_of("triton://triton.svc/m?replicas=dns", 8001)

    assert find is not None
    with pytest.raises(Unreachable, match=r"triton\.svc cannot be looked up"):
        find()
