"""A driver with a server and a clock that are made up."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, configuration, measurement
from tuner.adapters.backend import ApplyReport, Counters, Description
from tuner.control import ControlLoop, Driver, GuardLimits, Oversight, RunState, StateFile, Watched
from tuner.control.decide.orders import Orders
from tuner.control.drive.journal import Journal, WindowRecord
from tuner.errors import InvalidInput, Refused, StorageError, TimedOut, Unreachable
from tuner.knobs import ApplyCost, Configuration
from tuner.measurement import Measurement
from tuner.profiler.load.in_flight import WithInFlight

P95 = Callable[[Configuration], float]


class FakeClock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


class FakeServer:
    """A backend and its measurer: p95 by configuration, refusals and outages on demand."""

    space = SPACE

    def __init__(self, clock: FakeClock, p95: P95) -> None:
        self.clock = clock
        self.p95 = p95
        self.running = configuration()
        self.refuses: set[Configuration] = set()
        self.cannot_be_set_to: set[Configuration] = set()  # its adapter does not take these
        self.away_until = -1.0
        self.restarted = False  # whether the next window shows that its process began anew

    def describe(self) -> Description:
        return Description(
            target="fake://x/m", server="fake", version="1", model="m", writable=True, quantiles=True
        )

    def current(self) -> Configuration:
        self._answer()
        return self.running

    def apply(self, wanted: Configuration) -> ApplyReport:
        self._answer()
        if wanted in self.cannot_be_set_to:
            raise InvalidInput(
                "knob max_batch_size", f"{wanted['max_batch_size']:g} is no size of this model"
            )
        if wanted in self.refuses:
            raise Refused("the server refused: out of memory")
        self.running, old = wanted, self.running
        return ApplyReport(
            configuration=wanted, changed=wanted != old, cost=ApplyCost.RELOAD, seconds=0.1, settle=1.5
        )

    def counters(self) -> Counters:
        empty = np.zeros(2)
        return Counters(
            time=0, requests=0, failures=0, latency=0, queue=0, compute=0, inferences=0,
            batch_counts=empty.astype(int), batch_seconds=empty,
        )  # fmt: skip

    def profile(self) -> None:
        return None

    def close(self) -> None:
        pass

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        self._answer()
        self.clock.sleep(settle + seconds)
        restarted, self.restarted = self.restarted, False
        m = measurement(self.p95(self.running), running=self.running, end=self.clock.now())
        return replace(m, restarted=restarted)

    def _answer(self) -> None:
        if self.clock.now() < self.away_until:
            raise Unreachable("no answer on 127.0.0.1:8001")


class Clients:
    """Our own clients, who only remember how many of their requests may be in flight."""

    in_flight = 0

    def set_in_flight(self, most: int) -> None:
        self.in_flight = most


class ServerAndClients:
    """A server with the knob of our clients beside its own, and its measurer."""

    def __init__(self, server: FakeServer, clients: Clients) -> None:
        load: Any = clients
        self.server, self.backend = server, WithInFlight(server, load, (4.0, 16.0))

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        m = self.server.measure(seconds, settle=settle, enough=enough)
        return replace(m, configuration=self.backend.current())

    @property
    def watched(self) -> Watched:
        return Watched(self.backend, self, self.server.clock)


def raising(error: Exception) -> Callable[[Configuration], NoReturn]:
    """A backend's apply that fails."""

    def apply(_: Configuration) -> NoReturn:
        raise error

    return apply


def drive(
    server: FakeServer,
    *proposals: Configuration,
    state: Path | None = None,
    journal: Journal | None = None,
    resume: RunState | None = None,
    patience: float = 300.0,
    watched: Watched | None = None,
    **oversight: Any,
) -> tuple[Driver, list[str]]:
    watched = watched or Watched(server, server, server.clock)
    agent = ScriptedAgent(*proposals)
    loop = ControlLoop(watched.backend.space, OBJECTIVE, agent, limits=GuardLimits())
    heard: list[str] = []
    driver = Driver(
        watched,
        loop,
        window=5.0,
        oversight=Oversight(**oversight),
        journal=journal or StateFile(state),
        resume=resume,
        patience=patience,
        notify=heard.append,
    )
    return driver, heard


class Book:
    """Orders in force."""

    def __init__(self, **orders: Any) -> None:
        self.orders = Orders(**orders)

    def read(self) -> Orders:
        return self.orders

    def moved(self, pinned: Configuration, found: Configuration) -> None:
        self.orders = Orders(pinned=found)

    def done(self, rollback: Configuration) -> None:
        self.orders = Orders()


class Log:
    """A journal that keeps everything in order."""

    def __init__(self, full: Collection[str] = ()) -> None:
        self.lines: list[tuple[str, object]] = []
        self.full = full

    def _note(self, what: str, detail: object) -> None:
        if what in self.full:
            raise StorageError("the disk is full")
        self.lines.append((what, detail))

    def decided(self, record: WindowRecord, state: RunState) -> None:
        self._note("decided", record.outcome)

    def changing(self) -> None:
        self._note("changing", "")

    def changed(self, record: WindowRecord, state: RunState) -> None:
        self._note("changed", (record.outcome, state.current["max_batch_size"]))

    def stands(self, state: RunState) -> None:
        pass


def unseen(seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> NoReturn:
    """The server answers, its metrics do not."""
    raise TimedOut("metrics port 8002: no answer within 5 s")


def away(server: FakeServer, running: Configuration) -> None:
    """The server goes, and comes back with another configuration."""
    server.away_until = server.clock.now() + 3
    server.running = running


def silent(target: FakeServer, *, done: bool) -> None:
    """Its next change is not answered, whether it was done or not; later ones are."""
    apply = target.apply

    def vanish(wanted: Configuration) -> NoReturn:
        target.apply = apply  # type: ignore[method-assign]
        if done:
            apply(wanted)
        raise Unreachable("connection reset")

    target.apply = vanish  # type: ignore[method-assign]
