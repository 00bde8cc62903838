"""Three replicas whose latency and failures depend on what they run, and the driver of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.adapters.replicas.bed import Server
from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, configuration, measurement
from tests.control.drive.driver_bed import FakeClock
from tuner.adapters import Counters
from tuner.adapters.replicas.group import ReplicaGroup
from tuner.adapters.replicas.membership import Membership
from tuner.control import ControlLoop, Driver, Oversight, Watched
from tuner.control.drive.journal import Journal
from tuner.knobs import Configuration
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


def driver_of(
    fleet: Fleet,
    canary: bool = True,
    journal: Journal | None = None,
    notify: Callable[[str], None] = print,
    **oversight: Any,
) -> Driver:
    return Driver(
        Watched(fleet.group, fleet, fleet.clock),
        fleet.loop,
        window=5.0,
        oversight=Oversight(canary=canary, **oversight),
        journal=journal,
        notify=notify,
    )
