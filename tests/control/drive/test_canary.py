"""The canary: one of several replicas tries a change before the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.adapters.replicas.bed import Server
from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, configuration, measurement
from tests.control.drive.driver_bed import Book, FakeClock
from tuner.adapters import Counters
from tuner.adapters.replicas.canary import Canary, CanaryTrial, ServedRequests
from tuner.adapters.replicas.group import ReplicaGroup
from tuner.adapters.replicas.membership import Membership
from tuner.control import Apply, ControlLoop, Driver, Hold, Oversight, RunState, Watched, WindowRecord
from tuner.control.daemon.stoppable_clock import Stopped
from tuner.control.decide.orders import Orders
from tuner.control.drive.canary import objection
from tuner.control.drive.journal import Journal
from tuner.control.store.journal import StoreJournal, resolve_unfinished
from tuner.control.store.store import Store
from tuner.control.store.unfinished import unfinished_change
from tuner.errors import AdapterError, Refused, StorageError, TimedOut, TunerError, Unreachable
from tuner.knobs import ApplyCost, Configuration
from tuner.measurement import Measurement

OLD, NEW, THEIRS = configuration(), configuration(2), configuration(16, 0.01, 2)


class Replica(Server):
    """One whose latency and failures depend on what it runs."""

    bad = NEW
    slow = failing = False

    def counters(self) -> Counters:
        self._answer()
        poor = self.running == self.bad
        total = super().counters()
        latency = (0.1 if self.slow and poor else 0.01) * self.requests
        failures = self.requests // 10 if self.failing and poor else 0
        return total.__class__(
            **{name: getattr(total, name) for name in total.__dataclass_fields__}
            | {"latency": latency, "failures": failures}
        )


class Fleet:
    """Three replicas, the driver of them, and a clock that lets requests come."""

    def __init__(self, canary: bool = True) -> None:
        self.servers = {name: Replica(name) for name in ("a", "b", "c")}
        self.group = ReplicaGroup(
            Membership("fake://all", lambda: list(self.servers), self.servers.__getitem__)
        )
        self.clock = FakeClock()
        self.clock.sleep = self.sleep  # type: ignore[method-assign]
        self.during: Callable[[], object] = lambda: None
        self.loop = ControlLoop(SPACE, OBJECTIVE, ScriptedAgent(NEW, NEW, NEW))
        self.driver = driver_of(self, canary)

    def sleep(self, seconds: float) -> None:
        self.clock.time += seconds
        for server in self.servers.values():
            server.requests += round(100 * seconds)
        self.during()

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        self.sleep(seconds + settle)
        return measurement(0.020, running=self.group.current(), end=self.clock.now())

    @property
    def running(self) -> list[Configuration]:
        return [server.running for server in self.servers.values()]


def driver_of(fleet: Fleet, canary: bool = True, journal: Journal | None = None, **oversight: Any) -> Driver:
    watched = Watched(fleet.group, fleet, fleet.clock)
    return Driver(
        watched, fleet.loop, window=5.0, oversight=Oversight(canary=canary, **oversight), journal=journal
    )


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet()
    yield fleet
    fleet.group.close()


def test_a_good_change_goes_to_one_and_then_to_all(fleet: Fleet) -> None:
    """The others have it a window later."""
    seen = []
    fleet.during = lambda: seen.append(fleet.running)

    record = fleet.driver.step()

    assert record.outcome == "applied"
    assert seen == [[OLD, OLD, OLD], [NEW, OLD, OLD]]
    assert fleet.running == [NEW, NEW, NEW]
    assert fleet.clock.now() == 5.0 + 5.0 + 1.5


def test_a_change_counts_although_only_the_one_that_tried_it_answers(fleet: Fleet) -> None:
    """It ran that already when all were asked: the change was made when it began to try it."""

    def give_up(_: Configuration) -> NoReturn:
        raise TimedOut("no answer within 5 s")

    for name in ("b", "c"):
        fleet.servers[name].apply = give_up  # type: ignore[method-assign, assignment]

    record = fleet.driver.step()

    assert record.outcome == "applied"
    assert record.report is not None
    assert (record.report.changed, record.report.cost) == (True, ApplyCost.RELOAD)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("slow", "even the mean, 100ms against 10ms elsewhere"),
        ("failing", "failed, 0 of 1300 requests elsewhere"),
    ],
)
def test_a_bad_change_never_reaches_the_others(fleet: Fleet, kind: str, word: str) -> None:
    """It is taken back, written down, and not tried again soon; the breaker is not for that."""
    for server in fleet.servers.values():
        setattr(server, kind, True)

    record = fleet.driver.step()
    again = fleet.driver.step()

    assert record.outcome == "failed"
    assert word in record.error
    assert fleet.running == [OLD, OLD, OLD]
    assert [server.applied for server in fleet.servers.values()] == [[NEW, OLD], [], []]
    assert not isinstance(again.decision, Apply)
    assert fleet.loop.memory.failed_changes == 0


def test_a_refusal_by_one_spares_the_others(fleet: Fleet) -> None:
    """As the server said."""
    fleet.servers["a"].refuses = True

    assert fleet.driver.step().error == "no"
    assert [server.applied for server in fleet.servers.values()] == [[], [], []]


def test_what_repairs_goes_to_all_at_once(fleet: Fleet) -> None:
    """There is no time to lose."""
    fleet.driver.step()
    for server in fleet.servers.values():
        server.applied.clear()
    begun = fleet.clock.now()

    fleet.driver._apply(Apply(configuration=OLD, reason="back", restores=True))

    assert fleet.running == [OLD, OLD, OLD]
    assert fleet.clock.now() == begun


def test_it_can_be_switched_off() -> None:
    """Then all are changed one after the other."""
    fleet = Fleet(canary=False)
    fleet.driver.step()
    fleet.group.close()

    assert fleet.running == [NEW, NEW, NEW]
    assert fleet.clock.now() == 5.0


@pytest.mark.parametrize(
    ("orders", "why"),
    [
        (Orders(paused="release"), "paused meanwhile: release"),
        (Orders(pinned=OLD), "another order came meanwhile"),
        (Orders(rollback=OLD), "another order came meanwhile"),
        (None, "no change is permitted any more"),
    ],
)
def test_what_is_forbidden_during_the_trial_is_taken_back(
    fleet: Fleet, store: Store, orders: Orders | None, why: str
) -> None:
    """An order, or the end of a maintenance window: the others never get it, and it may be tried again."""
    target, book, closed = store.target("a", "fake://all", SPACE, OLD).id, Book(), list[bool]()
    journal = StoreJournal(store, target, OBJECTIVE)
    fleet.driver = driver_of(fleet, journal=journal, orders=book, permit=lambda _: not closed)

    def forbid() -> None:
        if NEW in fleet.running:
            book.orders = orders or book.orders
            closed.extend([True] * (orders is None))

    fleet.during = forbid
    record = fleet.driver.step()

    assert (record.outcome, record.error) == ("interrupted", why)
    assert [server.applied for server in fleet.servers.values()] == [[NEW, OLD], [], []]
    assert book.orders == (orders or Orders()), "an order that was not followed yet stays"
    assert unfinished_change(store, target) is None
    assert fleet.loop.memory.failed_changes == 0
    assert not fleet.loop.memory.banned(fleet.loop.level or 0)


def test_one_that_is_stopped_in_the_middle_gets_its_own_back(fleet: Fleet) -> None:
    """The daemon ends while the canary runs."""

    def stop() -> NoReturn:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fleet.group.try_one(NEW, lambda settle: stop())

    assert fleet.running == [OLD, OLD, OLD]


def test_one_that_dies_of_it_is_not_followed(fleet: Fleet) -> None:
    """The others keep serving with what they run."""

    def die(settle: float) -> None:
        fleet.servers["a"].up = False

    with pytest.raises(Refused, match="a went away with the new configuration"):
        fleet.group.try_one(NEW, die)

    assert fleet.running[1:] == [OLD, OLD]


def test_a_single_replica_is_no_canary(fleet: Fleet) -> None:
    """When the others are away there is nobody to compare with."""
    for name in ("b", "c"):
        fleet.servers[name].up = False

    assert fleet.group.try_one(NEW, lambda settle: None) is None
    assert isinstance(fleet.group, Canary)


def share(requests: int = 100, failures: int = 0, mean: float = 0.01) -> ServedRequests:
    return ServedRequests(requests=requests, failures=failures, latency=requests * mean)


@pytest.mark.parametrize(
    ("tried", "others", "bad"),
    [
        (share(), share(), False),
        (share(failures=1), share(), False),
        (share(failures=6), share(), True),
        (share(failures=6), share(failures=5), False),
        (share(failures=1), share(requests=0), True),
        (share(mean=0.05), share(), True),
        (share(mean=0.05), share(mean=0.06), False),
        (share(mean=0.05), share(requests=0), True),
        (share(requests=0), share(), False),
        (share(requests=0, failures=5), share(), True),
    ],
)
def test_what_speaks_against_a_change(tried: ServedRequests, others: ServedRequests, bad: bool) -> None:
    """Only what is beyond doubt; a canary that got no request says nothing."""
    trial = CanaryTrial(server="a", tried=tried, others=others)

    assert bool(objection(trial, OBJECTIVE.slo)) is bad
    assert math.isnan(share(requests=0).mean)


@pytest.mark.parametrize("error", [Unreachable("no answer"), TimedOut("it may still do so")])
@pytest.mark.parametrize("how", ["take back", "change all", "go back", "fail to change all"])
def test_one_that_may_change_later_is_put_right_later(fleet: Fleet, error: AdapterError, how: str) -> None:
    """Nobody knows what it runs, which is no refusal; the others are left alone."""
    canary, group = fleet.servers["a"], fleet.group
    canary.fails[NEW] = error

    with pytest.raises(type(error), match=str(error)):
        group.try_one(NEW, lambda settle: None)
    canary.fails.clear()
    group.take_back()  # too early: it runs what it ran
    canary.running = NEW  # now it has changed
    if how == "take back":
        group.take_back()
    elif how == "fail to change all":
        fleet.servers["c"].fails[THEIRS] = Refused("no")
        with pytest.raises(Refused, match="c: no; the other replicas went back"):
            group.apply(THEIRS)
    else:
        group.apply(OLD if how == "go back" else THEIRS)

    assert fleet.running == [THEIRS if how == "change all" else OLD] * 3


def test_one_that_went_away_in_a_trial_gets_what_the_others_have(fleet: Fleet) -> None:
    """Once it is back: what they got meanwhile."""

    def die(settle: float) -> None:
        fleet.servers["a"].up = False

    with pytest.raises(Refused, match="a went away with the new configuration, and may still have it"):
        fleet.group.try_one(NEW, die)
    with pytest.raises(Unreachable):
        fleet.group.take_back()
    fleet.group.apply(THEIRS)
    fleet.servers["a"].up = True

    fleet.group.take_back()

    assert fleet.running == [THEIRS] * 3


def test_one_that_has_left_for_good_is_not_put_right(fleet: Fleet) -> None:
    """There is nothing to take back."""
    group = ReplicaGroup(
        Membership("fake://all", lambda: list(fleet.servers), fleet.servers.__getitem__, refresh=0.0)
    )
    group.try_one(NEW, lambda settle: None)
    fleet.servers.pop("a")
    group.counters()

    group.take_back()
    group.close()

    assert [server.applied for server in fleet.servers.values()] == [[], []]


def test_a_change_that_fails_after_a_trial_is_taken_back_at_all(fleet: Fleet) -> None:
    """Also at the one that tried it: what it ran before the trial counts."""
    fleet.servers["c"].fails[NEW] = Refused("no")

    record = fleet.driver.step()

    assert record.outcome == "failed"
    assert "c: no; the other replicas went back" in record.error
    assert fleet.running == [OLD, OLD, OLD]


def test_after_a_change_of_all_no_trial_is_left(fleet: Fleet) -> None:
    """What they all run is not taken back."""
    fleet.driver.step()

    fleet.group.take_back()

    assert fleet.running == [NEW, NEW, NEW]


def test_what_breaks_a_trial_off_is_heard_though_it_cannot_be_taken_back(fleet: Fleet) -> None:
    """A stop is a stop, also while the replica is away, which is put right later."""

    def stop(settle: float) -> NoReturn:
        fleet.servers["a"].up = False
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fleet.group.try_one(NEW, stop)
    fleet.servers["a"].up = True
    fleet.group.take_back()

    assert fleet.running == [OLD, OLD, OLD]


@pytest.mark.parametrize("error", [AdapterError("it serves neither"), StorageError("disk full")])
def test_one_that_fails_otherwise_is_put_back_at_once(fleet: Fleet, error: TunerError) -> None:
    """The caller hears why."""
    canary = fleet.servers["a"]
    canary.fails[NEW] = error

    with pytest.raises(type(error)):
        fleet.group.try_one(NEW, lambda settle: None)

    assert canary.applied == [OLD]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "s.db")
    yield store
    store.close()


def test_a_stop_in_a_trial_is_the_end_of_the_change(fleet: Fleet, store: Store) -> None:
    """SIGTERM while the canary runs: its own is put back, which is written down, and nothing is owed."""
    target = store.target("a", "fake://all", SPACE, OLD).id
    fleet.driver = driver_of(fleet, journal=StoreJournal(store, target, OBJECTIVE))

    def stop() -> None:
        if NEW in fleet.running:
            raise Stopped("stopped")

    fleet.during = stop
    with pytest.raises(Stopped):
        fleet.driver.step()

    row = store.row("SELECT * FROM decision")
    assert row is not None
    assert (row["outcome"], row["error"]) == (
        "interrupted",
        "stopped in the middle of it; the server runs what it ran before",
    )
    assert fleet.running == [OLD, OLD, OLD]
    fleet.servers["b"].running = THEIRS
    assert resolve_unfinished(store, target, fleet.driver) is None
    assert fleet.running == [OLD, THEIRS, OLD]


def test_a_stop_after_which_a_replica_is_away_leaves_the_change_open(fleet: Fleet, store: Store) -> None:
    """What nobody knows is not written down as known: the next life asks."""
    target = store.target("a", "fake://all", SPACE, OLD).id
    fleet.driver = driver_of(fleet, journal=StoreJournal(store, target, OBJECTIVE))

    def fail(wanted: Configuration) -> NoReturn:
        fleet.servers["a"].running = wanted
        raise RuntimeError("a bug")

    fleet.servers["a"].apply = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        fleet.driver.step()

    assert unfinished_change(store, target) is not None


@pytest.mark.parametrize(
    ("running", "after", "outcome"),
    [
        ([NEW, OLD, OLD], [OLD, OLD, OLD], "interrupted"),
        ([NEW, NEW, OLD], [OLD, OLD, OLD], "interrupted"),
        ([OLD, OLD, OLD], [OLD, OLD, OLD], "interrupted"),
        ([NEW, NEW, NEW], [NEW, NEW, NEW], "applied"),
        ([NEW, OLD, THEIRS], [NEW, OLD, THEIRS], "interrupted"),
        ([THEIRS, THEIRS, THEIRS], [THEIRS, THEIRS, THEIRS], "interrupted"),
    ],
)
def test_killed_while_one_tries(
    fleet: Fleet,
    store: Store,
    running: list[Configuration],
    after: list[Configuration],
    outcome: str,
) -> None:
    """The next life puts all back to what ran before, unless the change or somebody else was through."""
    target = killed_in_a_change(store)
    for server, found in zip(fleet.servers.values(), running, strict=True):
        server.running = found

    sentence = resolve_unfinished(store, target, fleet.driver)

    assert sentence is not None
    assert ("did not come about" in sentence) == (outcome == "interrupted")
    assert fleet.running == after
    assert unfinished_change(store, target) is None
    assert store.row("SELECT outcome FROM decision")["outcome"] == outcome  # type: ignore[index]


def test_killed_while_one_tries_that_is_away_afterwards(fleet: Fleet, store: Store) -> None:
    """It gets what the others run when it is back."""
    target = killed_in_a_change(store)
    fleet.servers["a"].running, fleet.servers["a"].up = NEW, False
    resolve_unfinished(store, target, fleet.driver)
    fleet.servers["a"].up = True

    fleet.driver.step()

    assert fleet.running == [OLD, OLD, OLD]


def test_what_was_decided_before_the_last_decision_is_over(fleet: Fleet, store: Store) -> None:
    """A change whose end was not written, after which the daemon went on, puts nothing back."""
    target = killed_in_a_change(store)
    held = WindowRecord(number=2, measurement=measurement(), decision=Hold(reason="fine"))
    store.decided(
        target, held, RunState(target="fake://all", original=dict(OLD), current=dict(OLD)), kept=True
    )
    fleet.servers["a"].running = NEW  # by somebody

    assert resolve_unfinished(store, target, fleet.driver) is None
    assert fleet.running == [NEW, OLD, OLD]
    outcomes = [row["outcome"] for row in store.rows("SELECT outcome FROM decision ORDER BY id")]
    assert outcomes == ["interrupted", "held"]


def test_a_server_that_refuses_to_go_back_is_not_asked_for_ever(fleet: Fleet, store: Store) -> None:
    """The change ends with the refusal."""
    target = killed_in_a_change(store)
    fleet.servers["a"].running, fleet.servers["a"].refuses = NEW, True

    resolve_unfinished(store, target, fleet.driver)

    assert unfinished_change(store, target) is None
    assert "could not be put back" in store.row("SELECT error FROM decision")["error"]  # type: ignore[index]


def killed_in_a_change(store: Store) -> int:
    """A change to NEW was under way when the process was killed; returns the target."""
    target = store.target("a", "fake://all", SPACE, OLD).id
    decided = WindowRecord(
        number=1, measurement=measurement(), decision=Apply(configuration=NEW, reason="x"), outcome="decided"
    )
    state = RunState(target="fake://all", original=dict(OLD), current=dict(OLD))
    store.changing(store.decided(target, decided, state, kept=True))
    return target
