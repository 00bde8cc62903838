"""Several servers as one backend, with plain fakes; the real ones are in triton/test_replicas.py."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pytest

from tests.adapters.replicas.bed import Server
from tests.builders import SPACE, configuration, measurement
from tuner.adapters.metrics.histogram import Histogram
from tuner.adapters.replicas import targets
from tuner.adapters.replicas.counters import merged
from tuner.adapters.replicas.group import ReplicaGroup
from tuner.adapters.replicas.membership import Membership
from tuner.adapters.replicas.targets import replicas_of
from tuner.errors import (
    AdapterError,
    InvalidInput,
    Refused,
    StillLoading,
    StorageError,
    TimedOut,
    TunerError,
    Unreachable,
)
from tuner.knobs import ApplyCost, Configuration, KnobSpace
from tuner.profiler.profiler import LATEST


def test_totals_are_added(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """Counts and batches are sums; of quantiles the worst counts."""
    servers["a"].requests, servers["bb"].requests = 5, 7

    counters = group.counters()

    assert (counters.requests, counters.failures) == (12, 3)
    assert counters.latency == pytest.approx(1.2)
    np.testing.assert_array_equal(counters.batch_counts, [0, 2, 2])
    assert counters.quantiles == {0.95: 0.07}


def test_one_that_idles_hides_no_quantiles(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """It has none for a while, though it served; those of the others are the group's."""
    servers["a"].requests, servers["bb"].requests = 5, 7
    servers["bb"].idle = True

    assert group.counters().quantiles == {0.95: 0.05}


def test_one_that_exports_no_quantiles_hides_all(servers: dict[str, Server]) -> None:
    """How long its requests take nobody knows, so the group's are not known either."""
    servers["bb"].exports = False
    servers["a"].requests, servers["bb"].requests = 5, 7

    with closing(ReplicaGroup(Membership("fake://all", lambda: list(servers), servers.__getitem__))) as group:
        assert group.counters().quantiles == {}
        assert not group.describe().quantiles


def test_one_without_a_histogram_leaves_the_group_without() -> None:
    """In whatever order they stand; one that has answered nothing yet leaves that of the others."""
    bounds = np.array([0.1, np.inf])
    some, empty = (Histogram(bounds, np.array(counts)) for counts in ([3, 1], [0, 0]))

    assert merged([some, None]) is merged([None, some]) is merged([empty, None]) is None
    assert merged([empty, empty]) is empty
    both = merged([some, empty, some])
    assert both is not None
    np.testing.assert_array_equal(both.counts, [6, 2])


def test_one_that_takes_no_changes_makes_a_group_that_takes_none(
    group: ReplicaGroup, servers: dict[str, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All must have one configuration."""
    fixed = replace(servers["bb"].describe(), writable=False)
    assert group.describe().writable
    monkeypatch.setattr(servers["bb"], "describe", lambda: fixed)

    assert not group.describe().writable


def test_totals_that_begin_anew_are_no_restart_of_all(group: ReplicaGroup) -> None:
    """One of them may have been restarted, and the others not."""
    assert not group.describe().counts_by_process


def test_one_with_another_model_is_told(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """The grids that all have in common are others then."""
    assert group.deployed_anew == ""
    target, server = list(servers.items())[1]

    server.deployed_anew = "it is another one"  # type: ignore[attr-defined]

    assert group.deployed_anew == f"{target}: it is another one"


def test_all_are_changed(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """One after the other; what the report says holds for all."""
    wanted = configuration(batch=8)

    report = group.apply(wanted)

    assert [server.applied for server in servers.values()] == [[wanted]] * 3
    assert group.current() == wanted
    assert (report.changed, report.cost, report.settle) == (True, ApplyCost.RELOAD, 1.5)


@pytest.mark.parametrize(("last", "came"), [(1.0, 1.0), (None, 0.1 * 200.0 / 3)], ids=["counted", "not"])
def test_affected_requests_are_added(
    group: ReplicaGroup, servers: dict[str, Server], last: float | None, came: float
) -> None:
    """Each waits for its own replica, 0.1 s; where one does not count them, its share of those that came."""
    for server, affected in zip(servers.values(), (2.0, 3.0, last), strict=True):
        server.affected = affected

    window = group.apply(configuration(batch=8)).noted(measurement(rate=200.0))

    assert window.change_requests == pytest.approx(5.0 + came)
    assert window.change_seconds == pytest.approx(0.1)


def test_the_one_that_tried_it_counts_with_its_change_then(
    group: ReplicaGroup, servers: dict[str, Server]
) -> None:
    """It ran it already when the others were changed, and is one of three all the same."""
    wanted = configuration(batch=8)
    servers["a"].affected = 2.0
    group.try_one(wanted, lambda settle: None)
    servers["a"].affected = None

    report = group.apply(wanted)

    assert [part.affected for part in report.replicas] == [2.0, None, None]
    assert [part.changed for part in report.replicas] == [True] * 3


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
    """Not only what a server refuses. So does that one, unless it says that nothing was changed."""
    wanted = configuration(batch=8)
    servers["bb"].fails[wanted] = error

    with pytest.raises(Refused, match=f"bb: {error}; the other replicas went back"):
        group.apply(wanted)

    assert [server.running for server in servers.values()] == [configuration()] * 3
    assert servers["bb"].applied == ([] if isinstance(error, InvalidInput) else [configuration()])
    assert servers["ccc"].applied == []


def test_one_that_may_change_later_makes_no_refusal(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """All are asked to go back, and the caller knows of which one it is not known."""
    wanted = configuration(batch=8)
    servers["bb"].fails[wanted] = TimedOut("it may still load")
    servers["ccc"].refuses = True

    with pytest.raises(
        TimedOut, match=r"ccc: no; not certain to run as before: bb \(it may still load\)"
    ) as caught:
        group.apply(wanted)

    assert caught.value.taken_back
    assert servers["a"].applied == [wanted, configuration()]
    assert servers["bb"].applied == [configuration()]


def test_one_that_is_still_loading_is_waited_for_whatever_is_with_the_others(
    group: ReplicaGroup, servers: dict[str, Server]
) -> None:
    """The kind of the error says so."""
    wanted = configuration(batch=8)
    servers["a"].fails[wanted] = Unreachable("reset")
    servers["bb"].fails[wanted] = StillLoading("it may still load")
    servers["ccc"].refuses = True

    with pytest.raises(StillLoading, match="ccc: no"):
        group.apply(wanted)


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


def test_a_trial_counts_what_was_served_during_it(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """Each of them had a failed request before."""

    def serve(settle: float) -> None:
        for server, requests in zip(servers.values(), (3, 5, 6), strict=True):
            server.requests += requests

    trial = group.try_one(configuration(batch=8), serve)

    assert trial is not None
    assert (trial.tried.requests, trial.others.requests) == (3, 11)
    assert (trial.tried.failures, trial.others.failures) == (0, 0)
    assert (trial.tried.mean, trial.others.mean) == pytest.approx((0.1, 0.1))


def test_a_trial_that_was_taken_back_takes_nothing_back_again(
    group: ReplicaGroup, servers: dict[str, Server]
) -> None:
    """What somebody sets after that stays."""
    group.try_one(configuration(batch=8), lambda settle: None)
    group.take_back()
    assert servers["a"].running == configuration()
    servers["a"].running = theirs = configuration(batch=4)

    group.take_back()

    assert servers["a"].running == theirs


@pytest.mark.parametrize("when", ["asked", "changed"])
def test_one_that_tried_what_another_does_not_take_goes_back(when: str) -> None:
    """Also where the other one is named before it, and where that says so before any is changed."""
    servers, wanted = {name: Server(name) for name in ("b", "a")}, configuration(batch=8)

    def check(_: Configuration) -> NoReturn:
        raise InvalidInput("knob max_batch_size", "8 is below 16, the rows that clients send")

    with closing(ReplicaGroup(Membership("fake://all", lambda: list(servers), servers.__getitem__))) as group:
        group.try_one(wanted, lambda settle: None)
        servers["b"].refuses = True
        if when == "asked":
            servers["b"].check = check  # type: ignore[attr-defined]
        with pytest.raises(InvalidInput if when == "asked" else Refused):
            group.apply(wanted)

    assert servers["a"].applied[0] == wanted
    assert [server.running for server in servers.values()] == [configuration()] * 2


def test_one_on_trial_that_somebody_else_has_changed_goes_back_to_that(
    group: ReplicaGroup, servers: dict[str, Server]
) -> None:
    """Not to what it ran before the trial, which nobody wants there any more."""
    group.try_one(configuration(batch=8), lambda settle: None)
    servers["a"].running = theirs = configuration(batch=4)
    servers["bb"].refuses = True

    with pytest.raises(Refused):
        group.apply(configuration(batch=16))

    assert servers["a"].applied[-2:] == [configuration(batch=16), theirs]


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


def test_what_was_found_is_put_back_wherever_it_can_be(
    group: ReplicaGroup, servers: dict[str, Server]
) -> None:
    """One that is away does not keep the others from what they ran; the error names it."""
    for server in servers.values():
        server.restore = partial(server.apply, configuration())  # type: ignore[attr-defined]
    group.apply(configuration(batch=8))
    servers["a"].up = False

    with pytest.raises(Unreachable, match=r"not certain to run as before: a \(a is away\)"):
        group.restore()

    assert [servers[name].running for name in ("bb", "ccc")] == [configuration()] * 2


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


def test_requests_go_to_all_that_answer(group: ReplicaGroup, servers: dict[str, Server]) -> None:
    """By turns; to all if none answers."""

    def addresses() -> str:
        return ",".join(one.address for one in group.endpoint().replicas)

    found = [addresses()]
    servers["bb"].up = False
    group.counters()
    found.append(addresses())
    servers["a"].up = servers["ccc"].up = False
    with pytest.raises(Unreachable):
        group.counters()
    found.append(addresses())
    servers.pop("a")
    servers["ccc"].up = True
    group.counters()
    found.append(addresses())

    assert found == ["a,bb,ccc", "a,ccc", "a,bb,ccc", "ccc"]


def test_requests_go_to_each_replica_in_its_own_way(
    group: ReplicaGroup, servers: dict[str, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the version that its target names, and its certificates; not with those of the first."""
    own = replace(servers["bb"].endpoint(), options={"version": "2"}, security={"ca": "/bb.pem"})
    monkeypatch.setattr(servers["bb"], "endpoint", lambda: own)

    assert group.endpoint().replicas[1] == own


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
        (socket.AF_INET, 0, 0, "", ("10.0.0.2", 8001)),
        (socket.AF_INET, 0, 0, "", ("10.0.0.1", 8001)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    find = replicas_of("triton://triton.svc/m?replicas=dns&metrics=off", 8001)

    assert find is not None
    assert find() == [
        "triton://10.0.0.1:8001/m?metrics=off",
        "triton://10.0.0.2:8001/m?metrics=off",
    ]
    with pytest.raises(InvalidInput, match="replicas='k8s' is unknown"):
        replicas_of("triton://h/m?replicas=k8s", 8001)
    with pytest.raises(InvalidInput, match="Port could not be cast"):
        replicas_of("triton://h:x/m?replicas=dns", 8001)


def test_a_name_with_addresses_of_two_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a dual-stack cluster each pod has one of each; it is one replica all the same."""
    of_6 = [(socket.AF_INET6, 0, 0, "", (address, 8001, 0, 0)) for address in ("fd00::7", "fd00::8")]
    found: list[Any] = [*of_6, (socket.AF_INET, 0, 0, "", ("10.0.0.7", 8001))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    find = replicas_of("triton://triton.svc/m?replicas=dns", 8001)
    assert find is not None

    both = find()
    del found[-1]

    assert both == ["triton://10.0.0.7:8001/m"]
    assert find() == ["triton://[fd00::7]:8001/m", "triton://[fd00::8]:8001/m"]


def test_a_name_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said so."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)

    find = replicas_of("triton://triton.svc/m?replicas=dns", 8001)

    assert find is not None
    with pytest.raises(Unreachable, match=r"triton\.svc cannot be looked up"):
        find()


def test_a_name_that_is_looked_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while no name server answers: nobody waits for that longer than some seconds."""
    over = threading.Event()

    def look_up(*_: object, **__: object) -> list[Any]:
        over.wait(600)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    longest = targets.LOOKUP
    monkeypatch.setattr(targets, "LOOKUP", 0.05)
    find = replicas_of("triton://triton.svc/m?replicas=dns", 8001)
    assert find is not None

    begun = time.monotonic()
    with pytest.raises(Unreachable, match=r"triton\.svc cannot be looked up: .* not found in time"):
        find()

    assert time.monotonic() - begun < 60
    assert longest < LATEST
    over.set()


def test_what_is_no_name() -> None:
    """It is found as little as one that nobody has."""
    find = replicas_of(f"triton://{'x' * 70}.svc/m?replicas=dns", 8001)

    assert find is not None
    with pytest.raises(Unreachable, match="is no name of a host"):
        find()
