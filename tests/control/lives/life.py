"""A random life of a target: daemons keep it one after the other, on one store, until trouble ends.

Each daemon is a real `Worker` with its driver, control loop, guard, journal and order book. What an adapter
and a profiler would be is the made-up `World`. A daemon is stopped, or killed at any moment: in the middle of
a change, before or after something is stored. The next one may have other settings.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.builders import SPACE
from tests.control.decide.random_life import CARE, Table
from tests.control.lives.world import LARGEST, Killed, World
from tuner.agents.agent import Agent
from tuner.control.daemon import worker as worker_module
from tuner.control.daemon.config import TargetConfig
from tuner.control.daemon.phase import NOT_STORED, OVERDUE_WINDOW, Phase
from tuner.control.daemon.report import WorkerReport
from tuner.control.daemon.stoppable_clock import Stopped
from tuner.control.daemon.worker import Worker
from tuner.control.drive.driver import Driver
from tuner.control.store import order_book
from tuner.control.store.store import Store
from tuner.errors import InvalidInput, StorageError
from tuner.knobs import KnobSpace

EPOCH = 1.7e9
"""When virtual time begins, s since 1970."""
NAME, URL, WINDOW = "a", "triton://127.0.0.1:8001/m", 5.0


class KilledStore(Store):
    """A store whose process may be killed before and after each transaction."""

    world: World

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        self.world.maybe_killed()
        with super().writing() as db:
            if self.world.time < self.world.full_until:
                raise StorageError("the disk is full")
            yield db
        self.world.maybe_killed()


class Stop:
    """The event that stops a worker; waiting for it takes virtual time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float) -> bool:
        if not self._set:
            self._world.sleep(seconds)
        return self._set


class StoppedClock:
    """The world's clock, on which no worker sleeps that is stopped."""

    def __init__(self, world: World, stop: Stop) -> None:
        self._world, self._stop = world, stop

    def now(self) -> float:
        return self._world.time

    def sleep(self, seconds: float) -> None:
        if not self._stop.is_set():
            self._world.sleep(seconds)
        if self._stop.is_set():
            raise Stopped("stopped")


class Keeper(Worker):
    """A worker in virtual time, with an agent that is made up."""

    def __init__(self, config: TargetConfig, store: Store, world: World, agent: Table, **more: Any) -> None:
        super().__init__(config, store, now=lambda: EPOCH + world.time, **more)
        stop: Any = Stop(world)
        self._stop = stop
        clock: Any = StoppedClock(world, stop)
        self._clock = clock
        self._phase = Phase(self._now, clock)
        self.clock = clock
        self.agent = agent
        self.driver: Driver | None = None

    @property
    def resumed(self) -> bool:
        """Whether it takes turns: it has resumed what was left."""
        return self.phase.startswith(("running", OVERDUE_WINDOW, NOT_STORED))

    def _grids(self) -> dict[str, tuple[float, ...]]:
        return {}

    def _agent(self, *_: object) -> tuple[Agent, int]:
        return self.agent, 0

    def _driver(self, *given: Any) -> Driver:
        self.driver = super()._driver(*given)
        return self.driver

    def _save(self, *_: object) -> None:
        pass

    def _log_traceback(self, error: Exception) -> None:
        raise AssertionError("an undeclared error") from error


class Life:
    """A target from its first window on.

    Args:
        seed: Where everything comes from.
        folder: For the store.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random = Random(seed)
        self.world = World(random, random.choice([0.2, 0.5, 1.0]))
        self.path = folder / f"{seed}.db"
        self.care = random.choice(CARE)
        self.objective = random.choice(["latency", "latency", "strict"])
        self.slo = "p95=30ms"
        self.mode = "apply"
        self.guess = random.choice([math.nan, 0.3, 0.7])
        self.canary = random.random() < 0.7
        self.worker: Keeper | None = None
        self.watch: Callable[[WorkerReport], None] = lambda _: None
        self.begun: Callable[[], None] = lambda: None
        self.heard: Callable[[str], None] = lambda _: None
        self.ended: Callable[[], None] = lambda: None
        self.store: Store = self._opened()

    def _opened(self) -> Store:
        store = KilledStore.__new__(KilledStore)
        store.world = self.world
        store.__init__(self.path, now=lambda: EPOCH + self.world.time)  # type: ignore[misc]
        return store

    def reopen(self) -> None:
        """Go on after a process was killed: what it had in memory is gone."""
        if not self.world.alive:
            self.store._owed.clear()
            self.world.alive = True
            self.store.close()
            self.store = self._opened()

    def daemon(self, windows: int, *, killed: bool = False, stopped: bool = False) -> None:
        """Let one process of the daemon keep the target.

        Args:
            windows: After how many windows it ends.
            killed: Whether it may be killed before.
            stopped: Whether it may be stopped in the middle of a window or a change.
        """
        world = self.world
        self.reopen()
        given = {"slo": self.slo, "objective": self.objective, "mode": self.mode, "canary": self.canary}
        config = TargetConfig.model_validate(
            {"name": NAME, "url": URL, "window": f"{WINDOW:g}s", "guard": self.care, **given}
        )
        agent = Table(self.random, self.guess, world.space)
        self.worker = worker = Keeper(
            config,
            self.store,
            world,
            agent,
            windows=windows,
            say=self._said,
            watch=lambda _, r: self.watch(r),
        )
        world.tell(f"a daemon begins: {self.mode} {self.slo} {self.objective} {self.care}")
        world.kill_in = self.random.randrange(1, 12 * windows) if killed else math.inf
        stop_at = world.time + self.random.uniform(0.5, 1.0) * windows * WINDOW if stopped else math.inf
        orders = world.during

        def during() -> None:
            orders()
            if world.time > stop_at:
                worker.stop()

        world.during = during
        self.begun()
        try:
            with patch.object(worker_module, "attached", self._attached):
                worker.run()
        except Killed:
            world.alive = False
        finally:
            world.during, world.kill_in = orders, math.inf
        world.tell("the daemon has ended")
        self.ended()

    @contextmanager
    def _attached(self, config: TargetConfig, grids: Any, **_: Any) -> Iterator[tuple[Any, Any]]:
        world, worker = self.world, self.worker
        assert worker is not None
        for replica in world.replicas:
            replica.space = world.space
        backend = world.backend()
        try:
            attachment = SimpleNamespace(
                backend=backend, space=backend.space, profiler=world, clock=worker.clock,
                host=SimpleNamespace(cores=2.0), original=backend.current(), cores=2.0, simulated=False,
                take_up=lambda _: None, description=SimpleNamespace(turns=()),
            )  # fmt: skip
            yield attachment, config.setting({})
        finally:
            backend.close()

    def _said(self, name: str, sentence: str, level: int = 0) -> None:
        self.world.tell(f"    {sentence}")
        self.heard(sentence)

    def order(self) -> None:
        """Somebody gives an order, or none."""
        world, random, store = self.world, self.random, self.store
        what = world.happens(pause=0.02, resume=0.04, pin=0.02, unpin=0.03, roll_back=0.02)
        if not what or not world.alive:
            return
        changes = {}
        if what == "pin" and random.random() < 0.7:
            knobs = [knob for knob in world.space.knobs if random.random() < 0.6]
            changes = {knob.name: random.choice(knob.grid) for knob in knobs}
        killed, world.kill_in = world.kill_in, math.inf  # it is another process that writes
        with suppress(InvalidInput, StorageError):
            given: Any = {"pause": ("by Ada",), "pin": (changes,)}.get(what, ())
            done = getattr(order_book, what)(store, NAME, *given)
            world.tell(f"order: {what} {world.text(done) if done else ''}")
        world.kill_in = killed

    def calm_down(self) -> None:
        """All trouble ends: nobody orders anything, and the target is tuned toward the SLO of the world."""
        self.world.calm_down()
        self.mode, self.slo = "apply", "p95=30ms"
        for end in (order_book.resume, order_book.unpin):
            with suppress(InvalidInput):
                end(self.store, NAME)

    def resettle(self) -> None:
        """The settings of the target may be changed while no daemon runs."""
        random, world = self.random, self.world
        if random.random() < 0.3 * world.trouble:
            self.mode = random.choice(["observe", "recommend", "apply", "apply"])
        if random.random() < 0.2 * world.trouble:
            self.slo = random.choice(["p95=30ms", "p95=30ms", "p95=15ms", "p99=60ms"])
        if random.random() < 0.2 * world.trouble:
            self.objective = random.choice(["latency", "strict"])
        if random.random() < 0.2 * world.trouble:
            batch, *others = SPACE.knobs
            runs = {one[batch.name] for one in (world.home, *(one.running for one in world.replicas))}
            fixed = tuple(sorted({batch.grid[2], *runs}))  # adapters add what runs, and what ran at first
            grids = batch.grid, batch.grid[1:], batch.grid[:-1], fixed, (1, 2, 4, 6, 8, LARGEST)
            grid = random.choice(grids)
            world.space = KnobSpace([replace(batch, grid=grid, default=grid[0]), *others])
