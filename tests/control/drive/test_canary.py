"""The canary: one of several replicas tries a change before the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.adapters.replicas.test_group import Server
from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, configuration, measurement
from tests.control.drive.driver_bed import FakeClock
from tuner.adapters import Counters
from tuner.adapters.replicas.canary import Canary, CanaryTrial, ServedRequests
from tuner.adapters.replicas.group import ReplicaGroup
from tuner.control import Apply, ControlLoop, Driver, Oversight, RunState, Watched, WindowRecord
from tuner.control.drive.canary import objection
from tuner.control.store.journal import resolve
from tuner.control.store.store import Store
from tuner.errors import Refused, Unreachable
from tuner.knobs import Configuration
from tuner.measurement import Measurement

OLD, NEW = configuration(), configuration(2)


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
        self.group = ReplicaGroup("fake://all", lambda: list(self.servers), self.servers.__getitem__)
        self.clock = FakeClock()
        self.clock.sleep = self.sleep  # type: ignore[method-assign]
        self.during: Callable[[], object] = lambda: None
        self.loop = ControlLoop(SPACE, OBJECTIVE, ScriptedAgent(NEW, NEW, NEW))
        self.driver = Driver(
            Watched(self.group, self, self.clock), self.loop, window=5.0, oversight=Oversight(canary=canary)
        )

    def sleep(self, seconds: float) -> None:
        self.clock.time += seconds
        for server in self.servers.values():
            server.requests += round(100 * seconds)
        self.during()

    def measure(self, seconds: float, *, settle: float = 0.0) -> Measurement:
        self.sleep(seconds + settle)
        return measurement(0.020, running=self.group.current(), end=self.clock.now())

    @property
    def running(self) -> list[Configuration]:
        return [server.running for server in self.servers.values()]


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
    assert fleet.loop.memory.failures == 0


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

    fleet.driver._change(Apply(configuration=OLD, reason="back", restores=True))

    assert fleet.running == [OLD, OLD, OLD]
    assert fleet.clock.now() == begun


def test_it_can_be_switched_off() -> None:
    """Then all are changed one after the other."""
    fleet = Fleet(canary=False)
    fleet.driver.step()
    fleet.group.close()

    assert fleet.running == [NEW, NEW, NEW]
    assert fleet.clock.now() == 5.0


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
        (share(failures=1), share(), True),
        (share(failures=1), share(failures=1), False),
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


def test_away_when_it_is_changed(fleet: Fleet) -> None:
    """Nothing is certain about that one, and the others are left alone."""
    real = fleet.servers["a"].apply

    def vanish(wanted: Configuration) -> NoReturn:
        real(wanted)
        raise Unreachable("no answer")

    fleet.servers["a"].apply = vanish  # type: ignore[method-assign]
    with pytest.raises(Refused, match="went away when it was changed"):
        fleet.group.try_one(NEW, lambda settle: None)

    assert fleet.running[1:] == [OLD, OLD]


def test_killed_while_one_tries(fleet: Fleet, tmp_path: Path) -> None:
    """The next life finds one replica with the change: all go back to what ran before."""
    store = Store(tmp_path / "s.db")
    target = store.target("a", "fake://all", SPACE, OLD).id
    decided = WindowRecord(
        number=1, measurement=measurement(), decision=Apply(configuration=NEW, reason="x"), outcome="decided"
    )
    state = RunState(target="fake://all", original=dict(OLD), current=dict(OLD))
    store.changing(store.decided(target, decided, state, kept=True))
    fleet.servers["a"].running = NEW

    sentence = resolve(store, target, fleet.driver)

    assert sentence is not None
    assert "did not come about" in sentence
    assert fleet.running == [OLD, OLD, OLD]
    assert store.unfinished(target) is None
    store.close()
